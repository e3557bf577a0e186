"""The role that scores answers and, with a strategy that trains, learns which of two is preferred."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roll_dispatch import Dispatch, register
from roll_pipelines.columns import tensor
from roll_pipelines.data.pairs import answer_rows
from roll_pipelines.losses.preference import PairScores, PreferenceLoss, PreferenceOptions, sequence_log_probs
from roll_pipelines.workers import Worker
from roll_pipelines.workers.worker import any_layout
from roll_protocol import DataProto, Metric
from roll_strategies import LossSum

# N answers   S positions   P pairs   p pairs of a micro-batch


class PreferenceWorker(Worker):
    """A role that gives answers their log-probability and can learn which of two is preferred."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config: Any) -> None:  # Any: each pipeline's own configuration
        """Starts the strategy; a micro-batch of so many pairs is one of twice as many rows to it."""
        super().initialize(pipeline_config)
        self.worker_config = copy.deepcopy(self.worker_config)
        self.worker_config.training_args.per_device_train_batch_size *= 2
        self.objective: PreferenceLoss = pipeline_config.objective()
        self.options: PreferenceOptions = pipeline_config.options()
        self.start_strategy()

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False, prefetch=True)
    def score(self, answers: DataProto) -> DataProto:
        """Returns the summed log-probability of each answer.

        Args:
            answers: `input_ids`, `attention_mask`, `response_mask` [N, S]; a rank may have none.
                `meta_info["disable_adapter"]` scores under the model without its adapter.

        Returns:
            `log_probs` [N] float32 and `tokens` [N] int64.
        """
        wanted = answers.select(["input_ids", "attention_mask", "response_mask"], [])

        def sums(micro: DataProto, logits: Tensor) -> tuple[Tensor, Mapping[str, object]]:
            log_probs, tokens = self.answer_log_probs(micro, logits)
            return log_probs.sum(), {"log_probs": log_probs, "tokens": tokens}

        found = self.engine.forward_step(any_layout(wanted), sums)
        if not found:
            found = {
                "log_probs": torch.zeros(len(answers)),
                "tokens": torch.zeros(len(answers), dtype=torch.int64),
            }
        return DataProto.from_single_dict(
            {name: torch.as_tensor(value).cpu() for name, value in found.items()}
        )

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False, prefetch=True)
    def train_step(self, pairs: DataProto) -> DataProto:
        """Takes one optimizer step on all pairs that the ranks hold together.

        Args:
            pairs: `input_ids`, `attention_mask`, `response_mask`, `pair_mask` [P, 2, S], `present` [P, 2],
                and `ref_log_probs` [P, 2]; `meta_info["kl"]` for a loss that needs it. Every rank has the
                same number of pairs, a multiple of its micro-batch.

        Returns:
            Metrics only.
        """
        answers = any_layout(answer_rows(pairs))
        answers.meta_info["rows_together"] = 2
        metrics = self.trainer.train_step(answers, self.loss_func)
        return DataProto(meta_info={"metrics": dict(metrics)})

    def loss_func(self, data: DataProto, output_tensor: Tensor) -> LossSum:
        """Returns the loss summed over the pairs of a micro-batch; the global number of pairs divides it.

        Args:
            data: rows [2p, S], of each pair the preferred answer and then the other one.
            output_tensor: logits.
        """
        log_probs, tokens = self.answer_log_probs(data, output_tensor)
        scores = pair_scores(
            log_probs,
            tokens,
            tensor(data, "ref_log_probs"),
            tensor(data, "present"),
            kl=float(data.meta_info.get("kl", 0.0)),
        )
        losses = self.objective.function(scores, self.options)
        metrics = pair_metrics(scores, self.objective, self.options, prefix=self.cluster_name)
        return LossSum(counted(losses, scores, self.objective).sum(), "pair_mask", metrics)

    def answer_log_probs(self, data: DataProto, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the summed log-probability and the number of tokens of each answer [N]."""
        ids, mask = tensor(data, "input_ids"), tensor(data, "attention_mask")
        return sequence_log_probs(
            self.engine.op_compute_log_probs(logits, ids, mask), tensor(data, "response_mask")
        )


def pair_scores(
    log_probs: Tensor, tokens: Tensor, reference: Tensor, present: Tensor, *, kl: float
) -> PairScores:
    """Returns what a loss sees, from columns with one entry an answer, the two of a pair one after the other.

    Args:
        log_probs: [2P] of the policy.
        tokens: [2P].
        reference: [2P] of the reference.
        present: [2P] bool.
        kl: see `PairScores`.
    """
    reference, there = reference.to(log_probs.dtype), present.bool()
    return PairScores(
        chosen=log_probs[0::2],
        rejected=log_probs[1::2],
        ref_chosen=reference[0::2],
        ref_rejected=reference[1::2],
        chosen_tokens=tokens[0::2],
        rejected_tokens=tokens[1::2],
        chosen_present=there[0::2],
        rejected_present=there[1::2],
        kl=kl,
    )


def counted(losses: Tensor, scores: PairScores, objective: PreferenceLoss) -> Tensor:
    """Returns losses [P], zero where a row is padding or lacks an answer that the loss needs."""
    if not objective.needs_pairs:
        return losses
    return torch.where(scores.chosen_present & scores.rejected_present, losses, 0.0)


def pair_metrics(
    scores: PairScores, objective: PreferenceLoss, options: PreferenceOptions, *, prefix: str
) -> dict[str, object]:
    """Returns the metrics of pairs, each weighing as much as there are pairs or answers with a number.

    Args:
        scores: of P pairs.
        objective: the loss, which says what a reward is.
        options: its numbers.
        prefix: stands before each name.

    Returns:
        `accuracy`, `margin`, `chosen_reward`, `rejected_reward`, `chosen_log_prob` and `rejected_log_prob`.
    """
    chosen, rejected = (reward.detach() for reward in objective.reward(scores, options))
    good, bad = scores.chosen_present, scores.rejected_present
    both = good & bad
    seen = {
        "accuracy": ((chosen > rejected).double(), both),
        "margin": (chosen - rejected, both),
        "chosen_reward": (chosen, good),
        "rejected_reward": (rejected, bad),
        "chosen_log_prob": (scores.chosen.detach(), good),
        "rejected_log_prob": (scores.rejected.detach(), bad),
    }
    return {f"{prefix}/{name}": _mean(values, where) for name, (values, where) in seen.items()}


def _mean(values: Tensor, where: Tensor) -> Metric:
    count = int(where.sum())
    total = float(torch.where(where, values.double(), 0.0).sum())
    return Metric.mean(total / max(1, count), weight=count)
