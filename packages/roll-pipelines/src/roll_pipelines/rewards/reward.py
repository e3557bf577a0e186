"""What a reward is: a function from one answer to one number."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One answer, as a reward function sees it."""

    prompt: str
    """What the model read."""
    response: str
    """What it wrote, without special tokens."""
    expected: str
    """A right answer."""
    entry: Mapping[str, Any]  # Any: what the source of the problem adds
    """The whole row that the problem came from."""
    finished: bool
    """Whether the model ended its answer itself, rather than at the length limit."""


RewardFunction = Callable[[Answered], float]
"""Returns the reward of one answer."""
RewardFactory = Callable[[Mapping[str, Any]], RewardFunction]  # Any: each reward's own settings
"""Called once in each reward worker with `reward_args`; returns the function."""
