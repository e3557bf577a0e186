"""The largest logits of each position, and the logits at given ids."""

from typing import NamedTuple

import torch
from torch import Tensor

from roll_strategies.ops.layout import Layout

# B rows   S positions   V vocabulary   K kept entries


class TopK(NamedTuple):
    """The kept logits, and where in the vocabulary they stand."""

    values: Tensor
    """[B, S, K]."""
    indices: Tensor | None
    """[B, S, K] int64; None when the whole vocabulary is kept."""


def topk_logits(logits: Tensor, topk: int, *, layout: Layout | None = None) -> TopK:
    """Returns the `topk` largest logits of each position, largest first; 0 keeps the whole vocabulary.

    Args:
        logits: [B, S, V], or this rank's positions.
        topk: 0 <= topk <= V.
        layout: where the positions stand in what the model was fed; None: as they are; the result is joined.

    Raises:
        ValueError: `topk` is negative or larger than the vocabulary.
    """
    width = logits.shape[-1]
    if not 0 <= topk <= width:
        raise ValueError(f"topk must be between 0 (all) and the vocabulary size {width}, got {topk}")
    if topk == 0:
        return TopK(logits if layout is None else layout.gather(logits), None)
    values, indices = torch.topk(logits, topk, dim=-1)
    if layout is not None:
        values, indices = layout.gather(values), layout.gather(indices)
    return TopK(values, indices)


def gather_by_teacher_indices(
    student_logits: Tensor, teacher_indices: Tensor | None, *, layout: Layout | None = None
) -> Tensor:
    """Returns the student's logits at the teacher's ids.

    Args:
        student_logits: [B, S, V], or this rank's positions.
        teacher_indices: [B, S, K] int64 for all positions; None keeps the whole vocabulary.
        layout: where the positions stand in what the model was fed; None: as they are; the result is joined.

    Returns:
        [B, S, K], or [B, S, V] without ids.
    """
    if teacher_indices is None:
        picked = student_logits
    else:
        local = teacher_indices if layout is None else layout.local(teacher_indices)
        picked = student_logits.gather(-1, local)
    return picked if layout is None else layout.gather(picked)
