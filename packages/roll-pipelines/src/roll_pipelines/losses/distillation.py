"""Losses that bring a student's distribution over the next token to a teacher's: pure functions."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

# ... any leading dimensions   V vocabulary   K kept entries   E entries that are compared: K, K+1 or V

Kind = Literal["forward_kl", "reverse_kl", "skewed_forward_kl", "skewed_reverse_kl", "js"]
Tail = Literal["bucket", "renormalise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillOptions:
    """The numbers in the formulas of distillation."""

    kind: Kind = "forward_kl"
    """Which divergence."""
    temperature: float = 1.0
    """Both distributions are taken at this temperature; the divergence is multiplied by its square."""
    skew: float = 0.1
    """Share of the first distribution that is mixed into the second one, for the skewed divergences."""
    js_weight: float = 0.5
    """Weight of the teacher in the Jensen-Shannon mixture; 0.5 is the symmetric one."""
    tail: Tail = "bucket"
    """Where the mass outside the teacher's kept entries goes: one entry more, or shared out over them."""


def kept_log_probs(logits: Tensor, indices: Tensor | None, *, temperature: float = 1.0) -> Tensor:
    """Returns log-probabilities under the whole vocabulary, at the kept entries only.

    Args:
        logits: [..., V].
        indices: [..., K] int64; None keeps the whole vocabulary.
        temperature: logits are divided by it.

    Returns:
        [..., K], or [..., V] without indices; float32, or float64 for float64 logits.
    """
    scaled = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    picked = scaled if indices is None else scaled.gather(-1, indices)
    return picked - torch.logsumexp(scaled, dim=-1, keepdim=True)


def comparable(log_probs: Tensor, *, whole: bool, tail: Tail = "bucket") -> Tensor:
    """Returns log-probabilities that sum to one, so that two models can be compared on the same entries.

    Args:
        log_probs: [..., K] under the whole vocabulary.
        whole: the K entries are the whole vocabulary; nothing is left out.
        tail: `bucket` adds one entry with the mass that was left out; a divergence over the K+1 entries is a
            lower bound of the one over the vocabulary and is zero only when the kept entries agree.
            `renormalise` divides by the kept mass; how much the student puts elsewhere is then not seen.

    Returns:
        [..., K], or [..., K+1] with a bucket.
    """
    if whole:
        return log_probs
    if tail == "renormalise":
        return torch.log_softmax(log_probs, dim=-1)
    kept = torch.logsumexp(log_probs, dim=-1, keepdim=True)
    return torch.cat([log_probs, _log_rest(kept)], dim=-1)


def _log_rest(log_mass: Tensor) -> Tensor:
    """Returns log(1 - e^x); a mass that rounds to one leaves the smallest rest that can be told."""
    x = log_mass.clamp(max=-torch.finfo(log_mass.dtype).eps)
    return torch.where(x > -math.log(2.0), torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(x)))


def token_divergence(student: Tensor, teacher: Tensor, options: DistillOptions) -> Tensor:
    """Returns the divergence at each position, times the square of the temperature.

    With teacher p, student q and skew a: `forward_kl` is KL(p, q), `reverse_kl` KL(q, p), `skewed_forward_kl`
    KL(p, a p + (1-a) q), `skewed_reverse_kl` KL(q, a q + (1-a) p), and `js` w KL(p, m) + (1-w) KL(q, m) with
    m = w p + (1-w) q.

    Args:
        student: [..., E] log-probabilities that sum to one.
        teacher: [..., E] log-probabilities of the same entries.
        options: the kind and its numbers.

    Returns:
        [...].
    """
    p, q = teacher, student
    if options.kind == "forward_kl":
        value = _kl(p, q)
    elif options.kind == "reverse_kl":
        value = _kl(q, p)
    elif options.kind == "skewed_forward_kl":
        value = _kl(p, _mix(p, q, options.skew))
    elif options.kind == "skewed_reverse_kl":
        value = _kl(q, _mix(q, p, options.skew))
    else:
        middle, w = _mix(p, q, options.js_weight), options.js_weight
        value = w * _kl(p, middle) + (1.0 - w) * _kl(q, middle)
    return value * options.temperature**2


def _kl(left: Tensor, right: Tensor) -> Tensor:
    p = left.exp()
    return (p * torch.where(p > 0, left - right, 0.0)).sum(-1)


def _mix(left: Tensor, right: Tensor, share: float) -> Tensor:
    """Returns log(share e^left + (1 - share) e^right) without leaving the logarithm."""
    if share <= 0.0 or share >= 1.0:
        return left if share >= 1.0 else right
    return torch.logaddexp(left + math.log(share), right + math.log1p(-share))


def position_divergence(
    student: Tensor,
    teacher: Tensor,
    labels: Tensor,
    options: DistillOptions,
    *,
    whole: bool,
    ignore_index: int = -100,
) -> Tensor:
    """Returns the divergence at each position that has a label, 0 elsewhere.

    Position t of every argument speaks of the same token, the one at t+1: labels are shifted already, so the
    cross-entropy and the divergence have one mask.

    Args:
        student: [B, S, K] log-probabilities under the whole vocabulary, at the teacher's entries.
        teacher: [B, S, K].
        labels: [B, S] shifted; -100 where nothing is learnt.
        options: the kind and its numbers.
        whole: the K entries are the whole vocabulary.
        ignore_index: the label that is not learnt.

    Returns:
        [B, S]; its sum is to be divided by the global number of labels.
    """
    wanted = labels != ignore_index
    q = comparable(student[wanted], whole=whole, tail=options.tail)
    p = comparable(teacher[wanted].to(student.dtype), whole=whole, tail=options.tail)
    values = token_divergence(q, p, options)
    return torch.zeros_like(labels, dtype=values.dtype).masked_scatter(wanted, values)
