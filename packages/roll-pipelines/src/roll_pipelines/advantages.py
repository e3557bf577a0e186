"""From the rewards of answers to the advantages of their tokens: pure functions on tensors."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

# B rows (groups of n answers to one prompt, one after the other)   T predicted positions

Estimator = Literal["grpo", "dr_grpo", "rloo", "reinforce"]
"""Baseline and scale of a reward: see the function of each name in `ESTIMATORS`."""
ESTIMATOR_NAMES: tuple[Estimator, ...] = get_args(Estimator)


def _groups(rewards: Tensor, group_size: int) -> Tensor:
    if rewards.ndim != 1:
        raise ValueError(f"rewards must be one number a row [B], got shape {tuple(rewards.shape)}")
    if group_size < 1 or len(rewards) % group_size:
        raise ValueError(
            f"{len(rewards)} rewards do not form groups of {group_size}; "
            f"every prompt needs the same number of answers"
        )
    return rewards.float().reshape(-1, group_size)


def _spread(rewards: Tensor) -> Tensor:
    """Standard deviation over the last dimension (n - 1), 0 for a single number instead of NaN."""
    if rewards.shape[-1] < 2:
        return torch.zeros_like(rewards[..., :1])
    return rewards.std(-1, keepdim=True)


def group_normalised(rewards: Tensor, group_size: int, *, epsilon: float = 1e-6) -> Tensor:
    """Returns `(R - mean) / (std + epsilon)` within each group, the advantage of GRPO.

    Args:
        rewards: [B].
        group_size: answers to one prompt. A group of one has the advantage 0.
        epsilon: added to the standard deviation, which divides by n - 1.

    Returns:
        [B].

    Raises:
        ValueError: the rewards do not form such groups.

    Example:
        >>> group_normalised(torch.tensor([0.0, 2.0, 5.0, 5.0]), 2)
        tensor([-0.7071,  0.7071,  0.0000,  0.0000])
    """
    grouped = _groups(rewards, group_size)
    centred = grouped - grouped.mean(-1, keepdim=True)
    return (centred / (_spread(grouped) + epsilon)).reshape(-1)


def group_centred(rewards: Tensor, group_size: int) -> Tensor:
    """Returns `R - mean` within each group, the advantage of Dr. GRPO: hard and easy prompts weigh alike.

    Args:
        rewards: [B].
        group_size: answers to one prompt.

    Returns:
        [B].
    """
    grouped = _groups(rewards, group_size)
    return (grouped - grouped.mean(-1, keepdim=True)).reshape(-1)


def leave_one_out(rewards: Tensor, group_size: int) -> Tensor:
    """Returns each reward minus the mean of the *other* answers to its prompt, the advantage of RLOO.

    Args:
        rewards: [B].
        group_size: answers to one prompt. A group of one has the advantage 0.

    Returns:
        [B].
    """
    grouped = _groups(rewards, group_size)
    if group_size == 1:
        return torch.zeros_like(grouped).reshape(-1)
    others = (grouped.sum(-1, keepdim=True) - grouped) / (group_size - 1)
    return (grouped - others).reshape(-1)


def batch_normalised(rewards: Tensor, group_size: int, *, epsilon: float = 1e-6) -> Tensor:
    """Returns `(R - mean) / (std + epsilon)` over the whole batch, the advantage of REINFORCE++.

    Args:
        rewards: [B].
        group_size: answers to one prompt; only checked.
        epsilon: added to the standard deviation.

    Returns:
        [B].
    """
    flat = _groups(rewards, group_size).reshape(1, -1)
    return ((flat - flat.mean(-1, keepdim=True)) / (_spread(flat) + epsilon)).reshape(-1)


ESTIMATORS: dict[Estimator, Callable[[Tensor, int], Tensor]] = {
    "grpo": group_normalised,
    "dr_grpo": group_centred,
    "rloo": leave_one_out,
    "reinforce": batch_normalised,
}
"""The function of each estimator: rewards [B] and group size -> advantages [B]."""


def token_advantages(
    rewards: Tensor,
    response_mask: Tensor,
    *,
    group_size: int,
    estimator: Estimator = "grpo",
    reward_clip: float | None = None,
    advantage_clip: float | None = None,
) -> Tensor:
    """Returns the advantage of every token: that of its row where the mask is 1, and 0 elsewhere.

    Args:
        rewards: [B], one for each answer.
        response_mask: [B, S]; 1 where a token is part of the answer.
        group_size: answers to one prompt.
        estimator: how rewards become advantages.
        reward_clip: largest size of a reward; None clips nothing.
        advantage_clip: largest size of an advantage; None clips nothing.

    Returns:
        [B, S-1] float32; column t belongs to the token at t+1.

    Raises:
        ValueError: the estimator is unknown, or the rewards do not form groups.
    """
    if estimator not in ESTIMATORS:
        raise ValueError(
            f"unknown advantage estimator {estimator!r}; choose from {', '.join(ESTIMATOR_NAMES)}"
        )
    if reward_clip is not None:
        rewards = rewards.clamp(-reward_clip, reward_clip)
    advantages = ESTIMATORS[estimator](rewards, group_size)
    if advantage_clip is not None:
        advantages = advantages.clamp(-advantage_clip, advantage_clip)
    return advantages[:, None] * (response_mask[:, 1:] != 0).float()
