"""Rewards by name: our own, and a user's by the dotted path of a function."""

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from roll_pipelines.rewards.reward import RewardFunction

BUILT_IN = {
    "exact_match": "roll_pipelines.rewards.rules:exact_match",
    "number": "roll_pipelines.rewards.rules:number",
    "reasoning_gym": "roll_pipelines.rewards.verified:reasoning_gym",
}
"""Short names of our own rewards."""


def find_reward(
    name: str, reward_args: Mapping[str, Any]
) -> RewardFunction:  # Any: each reward's own settings
    """Returns the reward function of a name, made with its settings.

    Args:
        name: a short name, or `module:factory`, a function that takes `reward_args` and returns the reward
            function.
        reward_args: its settings.

    Raises:
        ValueError: there is no such reward, or it refuses its settings.

    Example:
        >>> find_reward("exactmatch", {})
        Traceback (most recent call last):
            ...
        ValueError: no reward named 'exactmatch'; did you mean 'exact_match'? yours is 'module:factory'
    """
    target = BUILT_IN.get(name, name)
    module_name, colon, factory_name = target.partition(":")
    if not colon:
        near = get_close_matches(name, BUILT_IN, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(BUILT_IN)}."
        raise ValueError(f"no reward named {name!r}; {hint} yours is 'module:factory'")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module_name}.".startswith(f"{missing.name}."):
            raise
        raise ValueError(f"reward {name!r}: there is no module {missing.name!r} to import") from missing
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        raise ValueError(f"reward {name!r}: {module_name} has no function {factory_name!r}")
    made: RewardFunction = factory(reward_args)
    return made
