"""The largest logits of each position, and the logits at given ids."""

from typing import NamedTuple

import torch
from torch import Tensor

from roll_strategies.ops.layout import Layout
from roll_strategies.ops.vocabulary import VocabularyShard

# B rows   S positions   V vocabulary   K kept entries


class TopK(NamedTuple):
    """The kept logits, and where in the vocabulary they stand."""

    values: Tensor
    """[B, S, K]."""
    indices: Tensor | None
    """[B, S, K] int64; None when the whole vocabulary is kept."""


def topk_logits(
    logits: Tensor, topk: int, *, layout: Layout | None = None, vocabulary: VocabularyShard | None = None
) -> TopK:
    """Returns the `topk` largest logits of each position, largest first; 0 keeps the whole vocabulary.

    Args:
        logits: [B, S, V], or this rank's positions.
        topk: 0 <= topk <= V.
        layout: where the positions stand in what the model was fed; None: as they are; the result is joined.
        vocabulary: how the last dimension of the logits is split over ranks; None: it is whole.

    Raises:
        ValueError: `topk` is negative or larger than the vocabulary.
    """
    width = logits.shape[-1] if vocabulary is None else vocabulary.vocab_size
    if not 0 <= topk <= width:
        raise ValueError(f"topk must be between 0 (all) and the vocabulary size {width}, got {topk}")
    if topk == 0:
        whole = _whole_vocabulary(logits, vocabulary)
        return TopK(whole if layout is None else layout.gather(whole), None)
    if vocabulary is None:
        values, indices = torch.topk(logits, topk, dim=-1)
    else:
        values, indices = _topk_of_shards(logits, topk, vocabulary)
    if layout is not None:
        values, indices = layout.gather(values), layout.gather(indices)
    return TopK(values, indices)


def _topk_of_shards(logits: Tensor, topk: int, shard: VocabularyShard) -> tuple[Tensor, Tensor]:
    """Returns the largest among every rank's largest."""
    shard.check(logits.shape[-1])
    kept, real = min(topk, shard.width), min(topk, shard.used)
    values, places = torch.topk(logits[..., : shard.used], real, dim=-1)
    # Every rank sends equally many; filler is never among the largest, for there are topk real ids in all.
    values = torch.nn.functional.pad(values, (0, kept - real), value=float("-inf"))
    places = torch.nn.functional.pad(places + shard.start, (0, kept - real), value=shard.vocab_size)
    best, among = torch.topk(shard.gather(values), topk, dim=-1)
    return best, shard.gather(places).gather(-1, among)


def _whole_vocabulary(logits: Tensor, shard: VocabularyShard | None) -> Tensor:
    if shard is None:
        return logits
    shard.check(logits.shape[-1])
    return shard.gather(logits)[..., : shard.vocab_size]


def gather_by_teacher_indices(
    student_logits: Tensor,
    teacher_indices: Tensor | None,
    *,
    layout: Layout | None = None,
    vocabulary: VocabularyShard | None = None,
) -> Tensor:
    """Returns the student's logits at the teacher's ids.

    Args:
        student_logits: [B, S, V], or this rank's positions.
        teacher_indices: [B, S, K] int64 for all positions; None keeps the whole vocabulary.
        layout: where the positions stand in what the model was fed; None: as they are; the result is joined.
        vocabulary: how the last dimension of the logits is split over ranks; None: it is whole.

    Returns:
        [B, S, K], or [B, S, V] without ids.
    """
    if teacher_indices is None:
        picked = _whole_vocabulary(student_logits, vocabulary)
    else:
        local = teacher_indices if layout is None else layout.local(teacher_indices)
        if vocabulary is None:
            picked = student_logits.gather(-1, local)
        else:
            vocabulary.check(student_logits.shape[-1])
            places, mine = vocabulary.here(local)
            picked = vocabulary.sum_of_own(torch.where(mine, student_logits.gather(-1, places), 0.0))
    return picked if layout is None else layout.gather(picked)
