"""The policy-gradient losses of reinforcement learning, and how token losses become one number."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

# B rows   T predicted positions (S - 1)

Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"]
"""How token losses are weighed: every token alike, every row alike (mean or sum over its tokens)."""
AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)

_LARGEST_LOG_RATIO = 20.0


@dataclass(frozen=True, slots=True)
class Summed:
    """A sum over the rows at hand, and the name of the global count that divides it."""

    value: Tensor
    """Scalar."""
    denominator: str
    """`response_mask` (its tokens are counted) or `samples` (rows are counted)."""


def importance_ratio(log_probs: Tensor, old_log_probs: Tensor) -> Tensor:
    """Returns `exp(log_probs - old_log_probs)` [B, T], its exponent limited so that it stays finite.

    Args:
        log_probs: [B, T] under the policy that is being trained; carries the gradient.
        old_log_probs: [B, T] under the policy that drew the tokens.
    """
    return (log_probs - old_log_probs).clamp(-_LARGEST_LOG_RATIO, _LARGEST_LOG_RATIO).exp()


def ppo_clip_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
) -> Tensor:
    """Returns the clipped surrogate loss of every token, `-min(r A, clip(r, 1 - low, 1 + high) A)`.

    Args:
        log_probs: [B, T] under the policy that is being trained; carries the gradient.
        old_log_probs: [B, T] under the policy that drew the tokens.
        advantages: [B, T].
        clip_low: how far below 1 the ratio counts.
        clip_high: how far above 1 the ratio counts.
        dual_clip: with a negative advantage the loss is at most `-dual_clip * A`; None leaves it unbounded.

    Returns:
        [B, T], not masked.

    Raises:
        ValueError: `dual_clip` is not above 1.

    Example:
        >>> ppo_clip_loss(torch.tensor([[0.5]]), torch.tensor([[0.0]]), torch.tensor([[1.0]]))
        tensor([[-1.2000]])
    """
    if dual_clip is not None and dual_clip <= 1:
        raise ValueError(
            f"dual_clip bounds a loss that starts at 1 and must be above 1, not {dual_clip}; try 3.0"
        )
    ratio = importance_ratio(log_probs, old_log_probs)
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss = -torch.minimum(ratio * advantages, clipped * advantages)
    if dual_clip is None:
        return loss
    return torch.where(advantages < 0, torch.minimum(loss, -dual_clip * advantages), loss)


def clipped_tokens(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float
) -> Tensor:
    """Returns where clipping takes the gradient away: [B, T] bool.

    Args:
        log_probs: [B, T].
        old_log_probs: [B, T].
        advantages: [B, T].
        clip_low: how far below 1 the ratio counts.
        clip_high: how far above 1 the ratio counts.
    """
    ratio = importance_ratio(log_probs, old_log_probs)
    return ((advantages > 0) & (ratio > 1.0 + clip_high)) | ((advantages < 0) & (ratio < 1.0 - clip_low))


def aggregate(values: Tensor, mask: Tensor, mode: Aggregation = "token-mean") -> Summed:
    """Returns token values as a sum whose division by a *global* count gives the mean of `mode`.

    Summing over any split of the rows and dividing once gives the same number as the whole batch at once.

    Args:
        values: [B, T]; may hold anything, also infinities, where the mask is 0.
        mask: [B, T]; non-zero where a token counts.
        mode: see `Aggregation`. A row without a token counts as a row whose loss is 0.

    Raises:
        ValueError: the mode is unknown.

    Example:
        >>> values, mask = torch.tensor([[1.0, 3.0], [6.0, 9.0]]), torch.tensor([[1, 1], [1, 0]])
        >>> aggregate(values, mask, "seq-mean-token-mean")
        Summed(value=tensor(8.), denominator='samples')
    """
    kept = torch.where(mask != 0, values, torch.zeros_like(values))
    if mode == "token-mean":
        return Summed(kept.sum(), "response_mask")
    if mode == "seq-mean-token-sum":
        return Summed(kept.sum(), "samples")
    if mode == "seq-mean-token-mean":
        tokens = (mask != 0).sum(-1).clamp(min=1)
        return Summed((kept.sum(-1) / tokens).sum(), "samples")
    raise ValueError(f"unknown loss aggregation {mode!r}; choose from {', '.join(AGGREGATIONS)}")
