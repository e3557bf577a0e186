"""Cutting, choosing and joining tensor columns, jagged ones included."""

from collections.abc import Sequence
from typing import Any, Final, cast

import torch
from torch import Tensor

_SIGNED: Final = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""Dtypes that torch cannot index on the CPU, and those of the same width that it can."""


def jagged(values: Tensor, offsets: Tensor) -> Tensor:
    """Return a jagged column.

    Args:
        values: [total, ...], the rows one after another.
        offsets: int64 [rows + 1], where each row starts and the last ends.
    """
    return torch.nested.nested_tensor_from_jagged(values, offsets)


def values_and_offsets(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Return what a jagged column is made of, as ``jagged`` takes it."""
    nested = cast("Any", tensor)  # torch declares neither method
    return nested.values(), nested.offsets()


def cut(tensor: Tensor, part: slice) -> Tensor:
    """Return rows of a column as a view.

    Args:
        tensor: [rows, ...], or jagged [rows, j, ...].
        part: Bounds inside the column; a positive step.
    """
    if not tensor.is_nested:
        return tensor[part]
    values, offsets = values_and_offsets(tensor)
    rows = len(offsets) - 1
    start, stop, step = part.indices(rows)
    if step != 1:
        return pick(tensor, torch.arange(start, stop, step))
    first, last = int(offsets[start]), int(offsets[max(start, stop)])
    return jagged(values[first:last], offsets[start : max(start, stop) + 1] - first)


def pick(tensor: Tensor, index: Tensor) -> Tensor:
    """Return chosen rows of a column in memory of their own.

    Args:
        tensor: [rows, ...], or jagged [rows, j, ...].
        index: int64 [n], every entry inside the column.
    """
    index = index.to(tensor.device)
    if not tensor.is_nested:
        return _pick_dense(tensor, index)
    values, offsets = values_and_offsets(tensor)
    lengths = offsets.diff()[index]
    ends = lengths.cumsum(0)
    total = int(ends[-1]) if len(ends) else 0
    within = torch.arange(total, device=tensor.device) - (ends - lengths).repeat_interleave(lengths)
    where = offsets[:-1][index].repeat_interleave(lengths) + within
    return jagged(_pick_dense(values, where), torch.cat([ends.new_zeros(1), ends]))


def _pick_dense(tensor: Tensor, index: Tensor) -> Tensor:
    signed = _SIGNED.get(tensor.dtype)
    if signed is None:
        return tensor.index_select(0, index)
    return tensor.view(signed).index_select(0, index).view(tensor.dtype)


def join(tensors: Sequence[Tensor]) -> Tensor:
    """Return columns of one dtype below one another, in memory of their own."""
    if not tensors[0].is_nested:
        return torch.cat(list(tensors))
    parts = [values_and_offsets(tensor) for tensor in tensors]
    lengths = torch.cat([offsets.diff() for _, offsets in parts])
    values = torch.cat([values for values, _ in parts])
    return jagged(values, torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]))
