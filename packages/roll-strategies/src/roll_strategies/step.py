"""One training step over micro-batches, the same for every engine."""

import re
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from roll_protocol import DataProto, Metric
from roll_strategies.counts import GlobalCounts
from roll_strategies.interfaces import LossFunc
from roll_strategies.losses import normalised
from roll_strategies.microbatches import MicroBatches
from roll_strategies.results import take_rows

_TAG = re.compile(r"@(sum|mean|max|min|std|p50|p99|last|list)$")


class StepMetrics:
    """What loss functions report, joined over micro-batches: each emission counts once."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def add(self, metrics: Mapping[str, object], *, rows: int) -> None:
        """Takes the metrics of one micro-batch.

        Args:
            metrics: a `Metric` is taken as it is; a name that ends in `@sum`, `@mean`, `@max`, `@min` is
                joined so; any other number is averaged, weighing as much as the micro-batch has rows.
            rows: rows in the micro-batch.
        """
        for name, value in metrics.items():
            metric = value if isinstance(value, Metric) else _metric(name, value, rows)
            before = self._metrics.get(name)
            self._metrics[name] = metric if before is None else before.merge(metric)

    def result(self) -> dict[str, object]:
        """Returns one `Metric` per name."""
        return dict(self._metrics)


def _metric(name: str, value: object, rows: int) -> Metric:
    if isinstance(value, Tensor):
        # A copy: what the loss function returned may share memory with what is still computed on.
        value = value.detach().clone().tolist()
    tag = _TAG.search(name)
    reducer = tag.group(1) if tag else "mean"
    if not isinstance(value, int | float):
        return Metric.list(value)
    return Metric.of(reducer, value, weight=rows if reducer == "mean" else 1.0)


def run_micro_batches(
    batch: DataProto,
    plan: MicroBatches,
    loss_func: LossFunc,
    counts: GlobalCounts,
    *,
    forward: Callable[[DataProto], Tensor],
    backward: Callable[[Tensor, int], None],
    idle: Callable[[int], None],
    device: str,
) -> tuple[float, dict[str, object]]:
    """Runs forward and backward over every micro-batch.

    Args:
        batch: this rank's rows.
        plan: their micro-batches; an empty one runs `idle` so that all ranks take part in every collective.
        loss_func: see `TrainStrategy.train_step`.
        counts: counts of the whole global batch.
        forward: micro-batch -> output [b, S, V].
        backward: takes the micro-batch's share of the global loss, and its number in the plan.
        idle: called with the number of an empty micro-batch.
        device: where micro-batches are moved.

    Returns:
        This rank's share of the global loss, and the joined metrics.
    """
    metrics = StepMetrics()
    total = 0.0
    for index, group in enumerate(plan.groups):
        if not group:
            idle(index)
            continue
        micro = take_rows(batch, group).to(device)
        micro.meta_info = {
            **batch.meta_info,
            "batch_num_tokens": dict(counts.tokens),
            "global_valid_samples": dict(counts.samples),
            "micro_batch_size": len(group),
        }
        with torch.enable_grad():
            returned = loss_func(micro, forward(micro))
            share, reported = normalised(
                returned, rows=len(group), tokens=counts.tokens, samples=counts.samples
            )
            metrics.add(reported, rows=len(group))
            total += float(share.detach())
            backward(share, index)
    return total, metrics.result()
