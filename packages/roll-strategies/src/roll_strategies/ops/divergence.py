"""Divergence between a teacher's and a student's distribution over the next token."""

import torch
from torch import Tensor

from roll_strategies.ops.chunks import check_temperature
from roll_strategies.ops.layout import Layout
from roll_strategies.ops.topk import TopK, gather_by_teacher_indices, topk_logits
from roll_strategies.ops.vocabulary import VocabularyShard

__all__ = ["TopK", "divergence", "topk_probs_and_indices"]

KINDS = ("forward_kl", "reverse_kl", "js")

# B rows   S positions   V vocabulary   K kept entries


def topk_probs_and_indices(
    logits: Tensor,
    topk: int,
    *,
    target_vocab_size: int | None = None,
    temperature: float = 1.0,
    layout: Layout | None = None,
    vocabulary: VocabularyShard | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Returns a teacher's distribution over its `topk` entries.

    Args:
        logits: [B, S, V], or this rank's positions.
        topk: entries to keep; 0 keeps the whole vocabulary.
        target_vocab_size: the student's vocabulary; entries beyond it are left out first.
        temperature: logits are divided by it.
        layout: where the positions stand in what the model was fed; None: as they are; the result is joined.
        vocabulary: how the last dimension of the logits is split over ranks; None: it is whole.

    Returns:
        Probabilities and log-probabilities [B, S, K] that sum to one over the kept entries, and their ids
        (None when the whole vocabulary is kept).
    """
    scale = check_temperature(temperature)
    if vocabulary is None:
        logits = logits[..., :target_vocab_size]
    else:
        vocabulary = vocabulary.narrowed(target_vocab_size)
    kept = topk_logits(logits, topk, layout=layout, vocabulary=vocabulary)
    logp = torch.log_softmax(kept.values.float() * scale, dim=-1)
    return logp.exp(), logp, kept.indices


def divergence(
    student_logits: Tensor,
    teacher_log_probs: Tensor,
    *,
    teacher_indices: Tensor | None = None,
    kind: str = "forward_kl",
    temperature: float = 1.0,
    layout: Layout | None = None,
    vocabulary: VocabularyShard | None = None,
) -> Tensor:
    """Returns the divergence at each position; position t speaks of the token at t+1.

    Args:
        student_logits: [B, S, V], or this rank's positions.
        teacher_log_probs: [B, S, K], normalised over K; K = V when `teacher_indices` is None.
        teacher_indices: [B, S, K]; the student is compared on these entries only, renormalised.
        kind: `forward_kl` (teacher || student), `reverse_kl` (student || teacher) or `js`.
        temperature: the student's logits are divided by it.
        layout: where the positions stand in what the model was fed; None: as they are.
        vocabulary: how the last dimension of the student's logits is split over ranks; None: it is whole.

    Returns:
        [B, S]; callers shift their masks to it (column t of the result with mask column t+1).

    Raises:
        ValueError: an unknown `kind`.
    """
    if kind not in KINDS:
        raise ValueError(f"kind of divergence must be one of {KINDS}, got {kind!r}")
    scale = check_temperature(temperature)
    picked = gather_by_teacher_indices(student_logits, teacher_indices, layout=layout, vocabulary=vocabulary)[
        :, : teacher_log_probs.shape[1]
    ]
    student = torch.log_softmax(picked.to(torch.promote_types(picked.dtype, torch.float32)) * scale, dim=-1)
    teacher = teacher_log_probs.to(student.dtype)
    if kind == "forward_kl":
        return _kl(teacher, student)
    if kind == "reverse_kl":
        return _kl(student, teacher)
    middle = torch.logaddexp(teacher, student) - torch.log(torch.tensor(2.0, dtype=student.dtype))
    return 0.5 * (_kl(teacher, middle) + _kl(student, middle))


def _kl(left: Tensor, right: Tensor) -> Tensor:
    p = left.exp()
    return torch.where(p > 0, p * (left - right), 0.0).sum(-1)
