"""Rows out of a batch, and results of micro-batches back in the order of the rows."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from roll_protocol import DataProto
from roll_strategies.errors import BatchError
from roll_strategies.microbatches import MicroBatches


def take_rows(batch: DataProto, rows: Sequence[int]) -> DataProto:
    """Returns those rows: views when they follow each other, copies otherwise."""
    if rows and list(rows) == list(range(rows[0], rows[0] + len(rows))):
        return batch.slice(rows[0], rows[0] + len(rows))
    return batch.select_idxs(list(rows))


def joined_results(parts: Sequence[Mapping[str, object]], plan: MicroBatches) -> dict[str, object]:
    """Returns one result per name, rows in input order.

    Args:
        parts: one mapping per non-empty micro-batch, in the order of the plan; tensors and arrays have rows
            first, lists have one entry per row.
        plan: which rows were in which micro-batch.

    Returns:
        Tensors [B, ...] as they came; everything else as object arrays [B].

    Raises:
        BatchError: micro-batches returned different names, or a result has not one entry per row.
    """
    if not parts:
        return {}
    names = list(parts[0])
    for part in parts:
        if list(part) != names:
            raise BatchError(
                f"forward_func must return the same names every time, got {names} and then {list(part)}"
            )
    sizes = [len(group) for group in plan.groups if group]
    inverse = plan.inverse
    return {name: _joined(name, [part[name] for part in parts], sizes, inverse) for name in names}


def _joined(name: str, values: Sequence[object], sizes: Sequence[int], inverse: Sequence[int]) -> object:
    for value, size in zip(values, sizes, strict=True):
        length = len(value) if isinstance(value, Tensor | np.ndarray | list | tuple) else None
        if length != size:
            raise BatchError(
                f"result {name!r} of forward_func must have one entry for each of the {size} rows of its "
                "micro-batch, got "
                f"{length if length is not None else type(value).__name__}"
            )
    in_order = list(inverse) == list(range(len(inverse)))
    tensors = [value for value in values if isinstance(value, Tensor)]
    if len(tensors) == len(values):
        whole = torch.cat(tensors) if len(tensors) > 1 else tensors[0]
        return whole if in_order else whole[torch.tensor(inverse, device=whole.device)]
    rows = np.empty(sum(sizes), dtype=object)
    flat = [entry for value in values for entry in value]  # type: ignore[attr-defined]  # checked above to be iterable
    for position, row in enumerate(inverse):
        rows[position] = flat[row]
    return rows
