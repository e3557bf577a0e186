"""The reward that reasoning-gym's own verifier gives."""

from collections.abc import Mapping
from typing import Any

from roll_pipelines.data.problems import open_task
from roll_pipelines.rewards.reward import Answered, RewardFunction

SETTINGS = ("task", "task_args", "partial_credit")


def reasoning_gym(reward_args: Mapping[str, Any]) -> RewardFunction:
    """Returns a reward that asks the verifier of a task.

    An answer that was cut off at the length limit is scored as it stands.

    Args:
        reward_args: `task`, its `task_args`, and `partial_credit`: True passes the verifier's number between
            0 and 1 on, False (the default) gives 1 for a right answer and 0 for any other.

    Raises:
        ValueError: a setting is unknown, or there is no such task.
    """
    unknown = sorted(set(reward_args) - set(SETTINGS))
    if unknown or "task" not in reward_args:
        raise ValueError(
            f"reward_args of 'reasoning_gym' are {', '.join(SETTINGS)}, of which task must be given; "
            f"got {dict(reward_args)}"
        )
    dataset = open_task(reward_args["task"], reward_args.get("task_args") or {}, seed=0, size=1)
    partial = bool(reward_args.get("partial_credit", False))

    def score(answered: Answered) -> float:
        credit = float(dataset.score_answer(answer=answered.response, entry=answered.entry))
        return credit if partial else float(credit >= 1.0)

    return score
