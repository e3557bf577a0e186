"""Rewards, and finding them by name."""

from collections.abc import Mapping
from typing import Any

import pytest

from roll_pipelines.data import ProblemSource, TaskConfig
from roll_pipelines.rewards import Answered, RewardFunction, find_reward

SETTINGS: dict[str, Any] = {"min_word_len": 3, "max_word_len": 4}  # Any: settings of a task
SPELL = {"task": "spell_backward", "task_args": SETTINGS}


def answered(response: str, expected: str = "", entry: Mapping[str, Any] | None = None) -> Answered:
    return Answered(prompt="", response=response, expected=expected, entry=entry or {}, finished=True)


def twice_as_long(reward_args: Mapping[str, Any]) -> RewardFunction:
    """A reward as a user writes one."""
    return lambda a: float(reward_args["factor"] * len(a.response))


@pytest.mark.parametrize(("response", "reward"), [("42", 1.0), (" 42\n", 1.0), ("420", 0.0), ("", 0.0)])
def test_exact_match_takes_the_right_answer_only(response: str, reward: float) -> None:
    assert find_reward("exact_match", {})(answered(response, "42")) == reward


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        ("so 3 + 1 = 4", 1.0),
        ("4", 1.0),
        ("\\boxed{4} and not 5", 1.0),
        ("4 or \\boxed{5}", 0.0),
        ("the answer is 4.0.", 1.0),
        ("-4", 0.0),
        ("four", 0.0),
        ("1,004", 0.0),
    ],
)
def test_number_takes_the_last_number_or_the_boxed_one(response: str, reward: float) -> None:
    assert find_reward("number", {})(answered(response, "4")) == reward


def test_the_verifier_of_the_task_judges_every_answer_of_its_own_problems() -> None:
    source = ProblemSource(TaskConfig(name="spell_backward", args=SETTINGS), seed=0)
    reward = find_reward("reasoning_gym", SPELL)
    for number in range(20):
        problem = source[number]
        assert reward(answered(problem.answer, problem.answer, problem.entry)) == 1.0
        assert reward(answered(problem.answer + "x", problem.answer, problem.entry)) == 0.0
        assert reward(answered("", problem.answer, problem.entry)) == 0.0


def test_partial_credit_passes_the_number_of_the_verifier_on() -> None:
    entry = {"answer": "abcd"}
    assert find_reward("reasoning_gym", SPELL)(answered("abxx", entry=entry)) == 0.0
    assert (
        find_reward("reasoning_gym", {**SPELL, "partial_credit": True})(answered("abxx", entry=entry)) == 0.5
    )


def test_a_reward_of_the_user_is_found_by_its_path() -> None:
    reward = find_reward(f"{__name__}:twice_as_long", {"factor": 2})
    assert reward(answered("abc")) == 6.0


@pytest.mark.parametrize(
    ("name", "reward_args", "message"),
    [
        ("exact", {}, r"did you mean 'exact_match'\?"),
        ("qqq", {}, "known are exact_match, number, reasoning_gym"),
        ("no_such_module:f", {}, "no module 'no_such_module'"),
        ("json:f", {}, "json has no function 'f'"),
        ("exact_match", {"x": 1}, r"must be empty, got \{'x': 1\}"),
        ("reasoning_gym", {}, "of which task must be given"),
        ("reasoning_gym", {"task": "spell_backward", "partial": True}, "got .*partial"),
    ],
)
def test_what_cannot_be_found_or_made_is_refused(
    name: str, reward_args: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        find_reward(name, reward_args)
