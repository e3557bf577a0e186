"""Cutting, choosing and joining tensor columns, jagged ones included."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def cut(tensor: Tensor, part: slice) -> Tensor:
    """Return rows of a column as a view.

    Args:
        tensor: [rows, ...], or jagged [rows, j, ...].
        part: Bounds inside the column; a positive step.
    """
    if not tensor.is_nested:
        return tensor[part]
    offsets = tensor.offsets()
    rows = len(offsets) - 1
    start, stop, step = part.indices(rows)
    if step != 1:
        return pick(tensor, torch.arange(start, stop, step))
    first, last = int(offsets[start]), int(offsets[max(start, stop)])
    return _jagged(tensor.values()[first:last], offsets[start : max(start, stop) + 1] - first)


def pick(tensor: Tensor, index: Tensor) -> Tensor:
    """Return chosen rows of a column in memory of their own.

    Args:
        tensor: [rows, ...], or jagged [rows, j, ...].
        index: int64 [n], every entry inside the column.
    """
    index = index.to(tensor.device)
    if not tensor.is_nested:
        return tensor.index_select(0, index)
    offsets = tensor.offsets()
    lengths = offsets.diff()[index]
    ends = lengths.cumsum(0)
    total = int(ends[-1]) if len(ends) else 0
    within = torch.arange(total, device=tensor.device) - (ends - lengths).repeat_interleave(lengths)
    where = offsets[:-1][index].repeat_interleave(lengths) + within
    return _jagged(tensor.values().index_select(0, where), torch.cat([ends.new_zeros(1), ends]))


def join(tensors: Sequence[Tensor]) -> Tensor:
    """Return columns of one dtype below one another, in memory of their own."""
    if not tensors[0].is_nested:
        return torch.cat(list(tensors))
    lengths = torch.cat([tensor.offsets().diff() for tensor in tensors])
    values = torch.cat([tensor.values() for tensor in tensors])
    return _jagged(values, torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]))


def _jagged(values: Tensor, offsets: Tensor) -> Tensor:
    column: Any = torch.nested.nested_tensor_from_jagged(values, offsets)  # torch leaves it untyped
    assert isinstance(column, Tensor)
    return column
