"""Rewards that compare an answer with the right one by a rule."""

import re
from collections.abc import Mapping
from typing import Any

from roll_pipelines.rewards.reward import Answered, RewardFunction

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def exact_match(reward_args: Mapping[str, Any]) -> RewardFunction:
    """Returns a reward of 1 for the right answer and 0 for anything else; space around it does not count.

    Args:
        reward_args: nothing.

    Example:
        >>> reward = exact_match({})
        >>> reward(Answered(prompt="1+1=", response="2 ", expected="2", entry={}, finished=True))
        1.0
    """
    _no_settings("exact_match", reward_args)
    return lambda answered: float(answered.response.strip() == answered.expected.strip())


def number(reward_args: Mapping[str, Any]) -> RewardFunction:
    r"""Returns a reward of 1 when the last number, in the last `\boxed{}` if there is one, is the right one.

    Args:
        reward_args: nothing.

    Example:
        >>> reward = number({})
        >>> answered = Answered(prompt="", response="\\boxed{4.0}", expected="4", entry={}, finished=True)
        >>> reward(answered)
        1.0
    """
    _no_settings("number", reward_args)

    def score(answered: Answered) -> float:
        found, wanted = _last_number(answered.response), _last_number(answered.expected)
        return float(found is not None and found == wanted)

    return score


def _last_number(text: str) -> float | None:
    _, box, rest = text.rpartition("\\boxed{")
    inside = rest.partition("}")[0] if box else text
    numbers = _NUMBER.findall(inside.replace(",", ""))
    return float(numbers[-1]) if numbers else None


def _no_settings(name: str, reward_args: Mapping[str, Any]) -> None:
    if reward_args:
        raise ValueError(f"reward_args of {name!r} must be empty, got {dict(reward_args)}; leave them out")
