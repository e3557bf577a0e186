"""The two roles of distillation: a teacher that shows its distribution, and a student that learns it."""

from collections.abc import Mapping

import torch
from torch import Tensor

from roll_dispatch import Dispatch, register
from roll_pipelines.columns import tensor
from roll_pipelines.data.supervised import IGNORE_INDEX
from roll_pipelines.losses.distillation import position_divergence
from roll_pipelines.workers.sft import SFTWorker
from roll_pipelines.workers.worker import any_layout, with_metrics
from roll_protocol import DataProto, Metric
from roll_strategies import InferenceStrategy, LossSum

# B rows of this rank   S positions   V vocabulary   K kept entries


class TeacherWorker(SFTWorker):
    """A role that shows its distribution over every token of an answer."""

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False, prefetch=True)
    def forward(self, rows: DataProto) -> DataProto:
        """Returns the teacher's distribution at every position.

        Args:
            rows: `input_ids`, `attention_mask`, `labels` [B, S]; a rank may have none.
                `meta_info["vocabulary"]` cuts vocabularies of different sizes to one.

        Returns:
            `teacher_log_probs` [B, S, K] float32 under the whole vocabulary, at the configured temperature,
            and their ids `teacher_indices` [B, S, K] int32 unless K is the whole vocabulary. They mean
            something where there is a label.
        """
        config = self.pipeline_config

        def show(micro: DataProto, logits: Tensor) -> tuple[Tensor, Mapping[str, object]]:
            shared = logits[..., : vocabulary_of(micro)]
            indices = self.engine.op_compute_topk_logits(shared, config.logits_topk).indices
            kept = kept_by(self.engine, micro, logits, indices, temperature=config.kd_temperature)
            found: dict[str, object] = {"teacher_log_probs": kept}
            if indices is not None:
                found["teacher_indices"] = indices.int()
            return kept.sum(), found

        found = self.engine.forward_step(any_layout(rows), show) or self._nothing(rows)
        return DataProto.from_single_dict(
            {name: torch.as_tensor(value).cpu() for name, value in found.items()}
        )

    def _nothing(self, rows: DataProto) -> dict[str, Tensor]:
        entries = self.pipeline_config.logits_topk or vocabulary_of(rows) or 0
        shape = (0, tensor(rows, "input_ids").shape[1], entries)
        empty = {"teacher_log_probs": torch.zeros(shape)}
        if self.pipeline_config.logits_topk:
            empty["teacher_indices"] = torch.zeros(shape, dtype=torch.int32)
        return empty


class StudentWorker(SFTWorker):
    """A role that learns a teacher's distribution, and the rows' own answers beside it."""

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False, prefetch=True)
    def divergence(self, rows: DataProto) -> DataProto:
        """Scores rows without learning from them.

        Args:
            rows: as for `train_step`, with the teacher's columns.

        Returns:
            Metrics only: `val_divergence` is the mean over answer tokens of all rows of all ranks.
        """

        def compare(micro: DataProto, logits: Tensor) -> tuple[Tensor, Mapping[str, object]]:
            each = self.distillation(micro, logits).sum(-1)
            tokens = (tensor(micro, "labels") != IGNORE_INDEX).sum(-1)
            return each.sum(), {"divergence": each, "tokens": tokens}

        found = self.engine.forward_step(any_layout(rows), compare)
        if not found:
            return with_metrics({})
        total, tokens = (
            float(torch.as_tensor(found[name]).double().sum()) for name in ("divergence", "tokens")
        )
        mean = Metric.mean(total / max(1.0, tokens), weight=tokens)
        return with_metrics({f"{self.cluster_name}/val_divergence": mean})

    def distillation(self, data: DataProto, logits: Tensor) -> Tensor:
        """Returns the divergence from the teacher [b, S] at every position with a label, 0 elsewhere."""
        config = self.pipeline_config
        indices = tensor(data, "teacher_indices").long() if "teacher_indices" in data else None
        student = kept_by(self.engine, data, logits, indices, temperature=config.kd_temperature)
        teacher, labels = tensor(data, "teacher_log_probs"), tensor(data, "labels")
        return position_divergence(student, teacher, labels, config.options(), whole=indices is None)

    def loss_func(self, data: DataProto, output_tensor: Tensor) -> LossSum:
        """Returns divergence and cross-entropy, weighed and summed; the global number of labels divides them.

        Args:
            data: the micro-batch, with the teacher's columns.
            output_tensor: logits.
        """
        labels = tensor(data, "labels")
        divergence = self.distillation(data, output_tensor).sum()
        cross_entropy = self.engine.op_compute_language_loss(output_tensor, labels).value
        tokens = int((labels != IGNORE_INDEX).sum())
        seen = {"kd_loss": divergence, "ce_loss": cross_entropy}
        metrics = {
            f"{self.cluster_name}/{name}": Metric.mean(float(value.detach()) / max(1, tokens), weight=tokens)
            for name, value in seen.items()
        }
        share = self.pipeline_config.distill_loss_weight
        return LossSum(share * divergence + (1.0 - share) * cross_entropy, "labels", metrics)


def vocabulary_of(data: DataProto) -> int | None:
    """Returns how many entries teacher and student share; None when their vocabularies have one size."""
    found = data.meta_info.get("vocabulary")
    return None if found is None else int(found)


def kept_by(
    engine: InferenceStrategy, data: DataProto, logits: Tensor, indices: Tensor | None, *, temperature: float
) -> Tensor:
    """Returns an engine's log-probabilities under the whole vocabulary, at the kept entries only.

    Only the engine knows how it lays rows out, so everything goes through its operations: the logarithm of
    the normaliser of a position is the logit of its next token minus that token's log-probability.

    Args:
        engine: that computed the logits.
        data: `input_ids`, `attention_mask` [b, S].
        logits: as the engine hands them out.
        indices: [b, S, K]; None keeps the whole vocabulary.
        temperature: logits are divided by it.

    Returns:
        [b, S, K], or [b, S, V] without ids; of no meaning where the next position is padding.
    """
    logits = logits[..., : vocabulary_of(data)]
    if indices is None:
        whole = engine.op_compute_gather_by_teacher_indices(logits, None)
        return torch.log_softmax(whole.float() / temperature, dim=-1)
    ids, mask = tensor(data, "input_ids"), tensor(data, "attention_mask")
    following = torch.cat([ids[:, 1:], ids[:, :1]], dim=1)[..., None]
    picked = engine.op_compute_gather_by_teacher_indices(logits, torch.cat([indices, following], dim=-1))
    picked = picked.float() / temperature
    known = engine.op_compute_log_probs(logits, ids, mask, temperature=temperature)
    normaliser = picked[:, :-1, -1] - known
    normaliser = torch.cat([normaliser, normaliser.new_zeros(len(normaliser), 1)], dim=1)
    return picked[..., :-1] - normaliser[..., None]
