"""What a loss function may return, and what the strategy makes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from roll_strategies.errors import LossError


@dataclass(frozen=True, slots=True)
class LossSum:
    """A sum over the micro-batch, and the count that divides it once it is summed over the whole global
    batch.

    Example:
        >>> import torch
        >>> LossSum(torch.tensor(3.0), "response_mask").denominator
        'response_mask'
    """

    value: Tensor
    """Scalar."""
    denominator: str
    """A mask column, `labels`, or `samples`."""
    metrics: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LossMean:
    """A mean over the rows of the micro-batch; it weighs as much as the micro-batch has rows."""

    value: Tensor
    """Scalar."""
    metrics: Mapping[str, object] = field(default_factory=dict)


def normalised(
    returned: object, *, rows: int, tokens: Mapping[str, int], samples: Mapping[str, int]
) -> tuple[Tensor, Mapping[str, object]]:
    """Returns this micro-batch's share of the global loss, and the loss function's metrics.

    Shares add up: their sum over micro-batches and data-parallel ranks is the loss of the global batch.

    Args:
        returned: what the loss function returned.
        rows: rows in the micro-batch.
        tokens: global count by column.
        samples: global number of rows by column, and under `default` of all rows.

    Raises:
        LossError: neither a LossSum, a LossMean nor a pair; not a scalar; or an unknown denominator.
    """
    if isinstance(returned, LossSum):
        value, metrics = returned.value, returned.metrics
        divisor = _divisor(returned.denominator, tokens, samples)
        return _scalar(value) / divisor, metrics
    if isinstance(returned, LossMean):
        return _scalar(returned.value) * (rows / samples["default"]), returned.metrics
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[0], Tensor):
        # A fresh tensor: the same object may also stand among the metrics.
        return _scalar(returned[0]) * 1.0, returned[1]
    raise LossError(
        "a loss function must return LossSum, LossMean or (loss, metrics) with a scalar tensor, got "
        f"{returned!r:.200}"
    )


def _divisor(name: str, tokens: Mapping[str, int], samples: Mapping[str, int]) -> int:
    if name == "samples":
        return samples["default"]
    if name in tokens:
        return tokens[name]
    raise LossError(
        f"LossSum names the denominator {name!r}, which was not counted over the global batch; counted are "
        f"{['samples', *sorted(tokens)]}: use one of them or add the column to meta_info['loss_mask_keys']"
    )


def _scalar(value: Tensor) -> Tensor:
    if value.numel() != 1:
        raise LossError(f"a loss must be one number, got a tensor of shape {tuple(value.shape)}; sum over it")
    return value.reshape(())
