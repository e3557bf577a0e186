"""Estimates of the divergence between two policies from the log-probabilities of sampled tokens."""

from typing import Literal, get_args

from torch import Tensor

KlKind = Literal["k1", "k2", "k3"]
"""Estimators: `k1` is unbiased, may be negative; `k2` half the square; `k3` unbiased and never negative."""
KL_KINDS: tuple[KlKind, ...] = get_args(KlKind)

_LARGEST_LOG_RATIO = 20.0


def kl_estimate(log_probs: Tensor, ref_log_probs: Tensor, kind: KlKind = "k3") -> Tensor:
    """Returns what each token, drawn from the policy, adds to the estimate of KL(policy || reference).

    With `d = ref_log_probs - log_probs`: k1 is `-d`, k2 is `d * d / 2`, k3 is `exp(d) - d - 1`.

    Args:
        log_probs: [B, T] under the policy; carries the gradient.
        ref_log_probs: [B, T] under the reference.
        kind: the estimator.

    Returns:
        [B, T], not masked.

    Raises:
        ValueError: the kind is unknown.

    Example:
        >>> import torch
        >>> kl_estimate(torch.tensor([0.0]), torch.tensor([0.0]))
        tensor([0.])
    """
    difference = (ref_log_probs - log_probs).clamp(-_LARGEST_LOG_RATIO, _LARGEST_LOG_RATIO)
    if kind == "k1":
        return -difference
    if kind == "k2":
        return 0.5 * difference.square()
    if kind == "k3":
        return difference.expm1() - difference
    raise ValueError(f"unknown KL estimator {kind!r}; choose from {', '.join(KL_KINDS)}")
