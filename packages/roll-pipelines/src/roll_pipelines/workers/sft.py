"""The role that learns right answers word by word."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roll_dispatch import Dispatch, register
from roll_pipelines.columns import tensor
from roll_pipelines.data.supervised import IGNORE_INDEX
from roll_pipelines.workers.worker import Worker, any_layout, with_metrics
from roll_protocol import DataProto, Metric
from roll_strategies import LossSum

# B rows of this rank   S positions


class SFTWorker(Worker):
    """A role that learns the tokens that `labels` name."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config: Any) -> None:  # Any: each pipeline's own configuration
        """Starts the strategy."""
        super().initialize(pipeline_config)
        self.start_strategy()

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False, prefetch=True)
    def train_step(self, rows: DataProto) -> DataProto:
        """Takes one optimizer step on all rows that the ranks hold together.

        Args:
            rows: `input_ids`, `attention_mask`, `labels` [B, S].

        Returns:
            Metrics only.
        """
        return with_metrics(dict(self.trainer.train_step(any_layout(rows), self.loss_func)))

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False, prefetch=True)
    def val_step(self, rows: DataProto) -> DataProto:
        """Scores rows without learning from them.

        Args:
            rows: `input_ids`, `attention_mask`, `labels` [B, S]; a rank may have none.

        Returns:
            Metrics only: `val_loss` is the mean over learnt tokens, `val_exact_match` the share of rows
            of which every learnt token is the most likely one, both over all rows of all ranks.
        """

        def score(micro: DataProto, logits: Tensor) -> tuple[Tensor, Mapping[str, object]]:
            labels = tensor(micro, "labels")
            learnt = labels != IGNORE_INDEX
            found = {"losses": -self.label_log_probs(micro, logits).sum(-1), "tokens": learnt.sum(-1)}
            likeliest = self.engine.op_compute_topk_logits(logits, 1).indices
            assert likeliest is not None, "only a whole vocabulary comes without ids"
            found["right"] = ((likeliest[..., 0] == labels) | ~learnt).all(-1)
            return found["losses"].sum(), found

        scored = self.engine.forward_step(any_layout(rows), score)
        return with_metrics(row_metrics(scored, prefix=self.cluster_name) if scored else {})

    def label_log_probs(self, data: DataProto, logits: Tensor) -> Tensor:
        """Returns the log-probability [b, T] of every learnt token, 0 elsewhere."""
        labels = tensor(data, "labels")
        ids = torch.where(labels[:, :-1] != IGNORE_INDEX, labels[:, :-1], tensor(data, "input_ids")[:, 1:])
        ids = torch.cat([tensor(data, "input_ids")[:, :1], ids], dim=1)
        log_probs = self.engine.op_compute_log_probs(logits, ids, tensor(data, "attention_mask"))
        return torch.where(labels[:, :-1] != IGNORE_INDEX, log_probs, torch.zeros_like(log_probs))

    def loss_func(self, data: DataProto, output_tensor: Tensor) -> LossSum:
        """Returns the summed cross-entropy of the labels, divided by their global count.

        Args:
            data: the micro-batch.
            output_tensor: logits [b, S, V].
        """
        return self.engine.op_compute_language_loss(output_tensor, tensor(data, "labels"))


def row_metrics(found: Mapping[str, object], *, prefix: str) -> dict[str, Any]:  # Any: roll_protocol.Metric
    """Returns the metrics of scored rows, each weighing as much as it has tokens or rows.

    Args:
        found: `losses`, `tokens` and `right`, [B] each.
        prefix: stands before each name.
    """
    losses, tokens = (torch.as_tensor(found[name]).double() for name in ("losses", "tokens"))
    total = float(tokens.sum())
    right = torch.as_tensor(found["right"]).double()
    return {
        f"{prefix}/val_loss": Metric.mean(float(losses.sum()) / max(1.0, total), weight=total),
        f"{prefix}/val_exact_match": Metric.mean(float(right.mean()), weight=len(right)),
    }
