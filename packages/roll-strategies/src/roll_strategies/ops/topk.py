"""The largest logits of each position, and the logits at given ids."""

from typing import NamedTuple

import torch
from torch import Tensor

from roll_strategies.ops.sequence import SequenceShard

# B rows   S positions   V vocabulary   K kept entries


class TopK(NamedTuple):
    """The kept logits, and where in the vocabulary they stand."""

    values: Tensor
    """[B, S, K]."""
    indices: Tensor | None
    """[B, S, K] int64; None when the whole vocabulary is kept."""


def topk_logits(logits: Tensor, topk: int, *, shard: SequenceShard | None = None) -> TopK:
    """Returns the `topk` largest logits of each position, largest first; 0 keeps the whole vocabulary.

    Args:
        logits: [B, S, V], or this rank's positions.
        topk: 0 <= topk <= V.
        shard: how the sequence is split; the result is joined.

    Raises:
        ValueError: `topk` is negative or larger than the vocabulary.
    """
    width = logits.shape[-1]
    if not 0 <= topk <= width:
        raise ValueError(f"topk must be between 0 (all) and the vocabulary size {width}, got {topk}")
    if topk == 0:
        return TopK(logits if shard is None else shard.gather(logits, logits.shape[1] * shard.size), None)
    values, indices = torch.topk(logits, topk, dim=-1)
    if shard is not None:
        length = logits.shape[1] * shard.size
        values, indices = shard.gather(values, length), shard.gather(indices, length)
    return TopK(values, indices)


def gather_by_teacher_indices(
    student_logits: Tensor, teacher_indices: Tensor | None, *, shard: SequenceShard | None = None
) -> Tensor:
    """Returns the student's logits at the teacher's ids.

    Args:
        student_logits: [B, S, V], or this rank's positions.
        teacher_indices: [B, S, K] int64 for all positions; None keeps the whole vocabulary.
        shard: how the sequence is split; the result is joined.

    Returns:
        [B, S, K], or [B, S, V] without ids.
    """
    if teacher_indices is None:
        picked = student_logits
        length = student_logits.shape[1] * (shard.size if shard else 1)
    else:
        local = teacher_indices if shard is None else shard.local(teacher_indices)
        picked, length = student_logits.gather(-1, local), teacher_indices.shape[1]
    return picked if shard is None else shard.gather(picked, length)
