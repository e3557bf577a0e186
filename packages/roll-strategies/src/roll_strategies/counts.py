"""How many tokens and rows the whole global batch has, counted once for all columns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor

from roll_protocol import DataProto
from roll_strategies.errors import BatchError

IGNORE_INDEX = -100


@dataclass(frozen=True, slots=True)
class GlobalCounts:
    """Counts over all rows of all data-parallel ranks."""

    tokens: Mapping[str, int]
    """By column: positions that count; at least 1."""
    samples: Mapping[str, int]
    """By column: rows with a position that counts; at least 1. Under `default`: all rows."""


def countable_columns(batch: DataProto) -> list[str]:
    """Returns the columns that are counted: those of `meta_info["loss_mask_keys"]`, `labels`, and every
    `*mask` that is as wide as `input_ids`.

    Raises:
        BatchError: a column named in `loss_mask_keys` is missing or not as wide as `input_ids`.
    """
    columns = columns_of(batch)
    wanted = list(batch.meta_info.get("loss_mask_keys") or [])
    shape = columns["input_ids"].shape[:2] if "input_ids" in columns else None
    for name in wanted:
        if name not in columns:
            raise BatchError(
                f"meta_info['loss_mask_keys'] names {name!r}, which the batch does not have; its columns are "
                f"{sorted(columns)}"
            )
        if shape is not None and columns[name].shape != shape:
            raise BatchError(
                f"mask column {name!r} has shape {tuple(columns[name].shape)}, but masks stand position by "
                "position "
                f"beside input_ids {tuple(shape)}"
            )
    found = [n for n, c in columns.items() if (n == "labels" or n.endswith("mask")) and c.shape == shape]
    return sorted({*wanted, *found})


def columns_of(batch: DataProto) -> dict[str, Tensor]:
    """Returns the tensor columns of a batch by name; none when it has no tensors."""
    if batch.batch is None:
        return {}
    return {str(name): cast("Tensor", value) for name, value in batch.batch.items()}


def counted(name: str, column: Tensor) -> Tensor:
    """Returns which positions of a column count.

    Args:
        name: `labels` counts what is not -100; every other column is a mask whose first position predicts
            nothing.
        column: [B, S].

    Returns:
        [B, S] or [B, S-1] bool.
    """
    return column != IGNORE_INDEX if name == "labels" else column[:, 1:] != 0


def global_counts(
    batch: DataProto, *, group: dist.ProcessGroup | None = None, copies: int = 1
) -> GlobalCounts:
    """Returns the counts over all ranks, with one collective for all columns.

    Args:
        batch: this rank's rows.
        group: ranks that hold the global batch together; None counts this rank alone.
        copies: how many ranks of the group hold the same rows (sequence pieces).
    """
    names = countable_columns(batch)
    columns = columns_of(batch)
    local = [len(batch)]
    for name in names:
        hits = counted(name, columns[name])
        local += [int(hits.sum()), int(hits.any(-1).sum())]
    totals = torch.tensor(local, dtype=torch.int64)
    if group is not None:
        totals = totals.to(_group_device(group))
        dist.all_reduce(totals, group=group)
    rows, *values = [total // copies for total in totals.tolist()]
    tokens = {name: max(1, values[2 * index]) for index, name in enumerate(names)}
    samples = {name: max(1, values[2 * index + 1]) for index, name in enumerate(names)}
    return GlobalCounts(tokens, {**samples, "default": max(1, rows)})


def _group_device(group: dist.ProcessGroup) -> torch.device:
    return torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu")
