"""The policy: it scores tokens, and learns from their advantages."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from roll_dispatch import Dispatch, register
from roll_pipelines.columns import tensor
from roll_pipelines.losses.kl import kl_estimate
from roll_pipelines.losses.policy import aggregate, clipped_tokens, importance_ratio, ppo_clip_loss
from roll_pipelines.workers.worker import Worker, with_metrics
from roll_protocol import DataProto, Metric, merge_metrics
from roll_strategies import LossSum

# B rows of this rank   S positions   T predicted positions (S - 1)


class ActorWorker(Worker):
    """A role that scores tokens and, with a strategy that trains, improves its policy.

    The loss reads its settings from the pipeline's configuration: `pg_clip_low`, `pg_clip_high`, `dual_clip`,
    `loss_agg_mode`, `kl_loss_coef`, `kl_loss_kind`, `entropy_loss_coef`, `ppo_epochs`, `seed`. Subclass
    and override `loss_func` for another one.
    """

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config: Any) -> None:  # Any: each pipeline's own configuration
        """Starts the strategy."""
        super().initialize(pipeline_config)
        self.start_strategy()

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False, prefetch=True)
    def compute_log_probs(self, rows: DataProto) -> DataProto:
        """Returns the log-probability of every answer token.

        Args:
            rows: `input_ids`, `attention_mask`, `response_mask` [B, S]; `meta_info["temperature"]` divides
                the logits.

        Returns:
            `log_probs` [B, T] float32, 0 where the mask is.
        """
        names = [
            "input_ids",
            "attention_mask",
            "response_mask",
            *(["position_ids"] if "position_ids" in rows else []),
        ]
        wanted = rows.select(names, [])
        temperature = float(rows.meta_info.get("temperature", 1.0))

        def score(micro: DataProto, logits: Tensor) -> tuple[Tensor, Mapping[str, object]]:
            log_probs = self.log_probs(micro, logits, temperature=temperature)
            mask = tensor(micro, "response_mask")[:, 1:] != 0
            return log_probs.sum(), {"log_probs": torch.where(mask, log_probs, torch.zeros_like(log_probs))}

        found = self.engine.forward_step(wanted, score)
        if not found:
            width = tensor(rows, "input_ids").shape[1] - 1
            found = {"log_probs": torch.zeros(len(rows), width)}
        return DataProto.from_single_dict({"log_probs": _on_cpu(found["log_probs"])})

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False, prefetch=True)
    def train_step(self, rows: DataProto) -> DataProto:
        """Learns from advantages: `ppo_epochs` passes over `meta_info["mini_batches"]` optimizer steps.

        Args:
            rows: `input_ids`, `attention_mask`, `response_mask` [B, S], `old_log_probs`, `advantages` [B, T],
                and `ref_log_probs` [B, T] when there is a KL loss.

        Returns:
            Metrics only.
        """
        reported = [
            self.trainer.train_step(part, self.loss_func)
            for epoch in range(self.pipeline_config.ppo_epochs)
            for part in self.mini_batches(rows, epoch=epoch)
        ]
        return with_metrics(merge_metrics(reported))

    def mini_batches(self, rows: DataProto, *, epoch: int) -> Iterator[DataProto]:
        """Yields this rank's share of each optimizer step, rows in an order that the run's seed decides.

        Every rank yields the same number of parts, some of them possibly empty.

        Args:
            rows: this rank's rows.
            epoch: number of the pass over them.
        """
        count = int(rows.meta_info.get("mini_batches", 1))
        if count > 1:
            step = int(rows.meta_info.get("global_step", 0))
            seed = (self.pipeline_config.seed * 1_000_003 + step) * 1_009 + epoch
            order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed % 2**62))
            rows = rows.select_idxs(order)
        yield from rows.chunk(count)

    def loss_func(self, data: DataProto, output_tensor: Tensor) -> LossSum:
        """Returns the clipped policy loss, plus KL loss, minus entropy, summed over a micro-batch's tokens.

        Args:
            data: the micro-batch.
            output_tensor: logits [b, S, V].
        """
        config = self.pipeline_config
        mask = tensor(data, "response_mask")[:, 1:] != 0
        old, advantages = tensor(data, "old_log_probs"), tensor(data, "advantages")
        temperature = float(data.meta_info.get("temperature", 1.0))
        log_probs = self.log_probs(data, output_tensor, temperature=temperature)
        losses = ppo_clip_loss(
            log_probs,
            old,
            advantages,
            clip_low=config.pg_clip_low,
            clip_high=config.pg_clip_high,
            dual_clip=config.dual_clip,
        )
        seen = {
            "pg_loss": losses,
            "ratio": importance_ratio(log_probs, old),
            "approx_kl": kl_estimate(log_probs, old),
        }
        seen["clip_fraction"] = clipped_tokens(
            log_probs, old, advantages, clip_low=config.pg_clip_low, clip_high=config.pg_clip_high
        ).float()
        if config.kl_loss_coef:
            seen["ref_kl"] = kl_estimate(log_probs, tensor(data, "ref_log_probs"), config.kl_loss_kind)
            losses = losses + config.kl_loss_coef * seen["ref_kl"]
        if config.entropy_loss_coef:
            attention = tensor(data, "attention_mask")
            seen["entropy"] = self.engine.op_compute_entropy(
                output_tensor, attention, temperature=temperature
            )
            losses = losses - config.entropy_loss_coef * seen["entropy"]
        summed = aggregate(losses, mask, config.loss_agg_mode)
        return LossSum(summed.value, summed.denominator, token_means(seen, mask, prefix=self.cluster_name))

    def log_probs(self, data: DataProto, logits: Tensor, *, temperature: float) -> Tensor:
        """Returns the log-probability [b, T] of each next token under logits [b, S, V]."""
        ids, mask = tensor(data, "input_ids"), tensor(data, "attention_mask")
        return self.engine.op_compute_log_probs(logits, ids, mask, temperature=temperature)


def token_means(values: Mapping[str, Tensor], mask: Tensor, *, prefix: str) -> dict[str, object]:
    """Returns the mean of each matrix over the tokens of a mask, weighing as much as there are tokens.

    Args:
        values: [b, T] by name.
        mask: [b, T] bool.
        prefix: stands before each name.
    """
    tokens = int(mask.sum())
    means: dict[str, object] = {}
    for name, value in values.items():
        total = float(torch.where(mask, value.detach(), torch.zeros_like(value)).double().sum())
        means[f"{prefix}/{name}"] = Metric.mean(total / max(1, tokens), weight=tokens)
    return means


def _on_cpu(value: object) -> Tensor:
    assert isinstance(value, Tensor), "forward functions here return tensors"
    return value.float().cpu()
