"""Advantages against hand-computed numbers and Python's own statistics."""

import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from roll_pipelines.advantages import (
    ESTIMATOR_NAMES,
    Estimator,
    batch_normalised,
    group_centred,
    group_normalised,
    leave_one_out,
    token_advantages,
)

GROUPS = st.integers(1, 5).flatmap(
    lambda n: st.tuples(
        st.just(n), st.lists(st.lists(st.floats(-4, 4), min_size=n, max_size=n), min_size=1, max_size=4)
    )
)


def test_grpo_has_the_values_computed_by_hand() -> None:
    found = group_normalised(torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 1.0]), 3)
    # Group one: mean 1/3, deviations 2/3 and -1/3 twice, variance (4/9 + 1/9 + 1/9) / 2 = 1/3.
    expected = torch.tensor([2 / 3, -1 / 3, -1 / 3, 0.0, 0.0, 0.0]) * 3**0.5
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_rloo_compares_with_the_other_answers() -> None:
    assert leave_one_out(torch.tensor([3.0, 1.0, 2.0]), 3).tolist() == [1.5, -1.5, 0.0]


def test_dr_grpo_only_centres() -> None:
    assert group_centred(torch.tensor([3.0, 1.0, 5.0, 5.0]), 2).tolist() == [1.0, -1.0, 0.0, 0.0]


def test_reinforce_normalises_over_the_batch() -> None:
    found = batch_normalised(torch.tensor([0.0, 0.0, 1.0, 1.0]), 2)
    torch.testing.assert_close(found, torch.tensor([-0.5, -0.5, 0.5, 0.5]) * 3**0.5, atol=1e-4, rtol=0)


@given(GROUPS)
def test_group_normalisation_equals_a_plain_loop(groups: tuple[int, list[list[float]]]) -> None:
    n, rewards = groups
    expected = []
    for group in rewards:
        mean = statistics.fmean(group)
        spread = statistics.stdev(group) if n > 1 else 0.0
        expected += [(reward - mean) / (spread + 1e-6) for reward in group]
    found = group_normalised(torch.tensor(rewards).reshape(-1), n)
    torch.testing.assert_close(found, torch.tensor(expected), atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo"])
def test_a_group_of_one_answer_has_the_advantage_zero_and_not_nan(estimator: Estimator) -> None:
    found = token_advantages(torch.tensor([1.0, 0.0]), torch.ones(2, 3), group_size=1, estimator=estimator)
    assert found.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_a_batch_of_one_row_has_the_advantage_zero() -> None:
    assert batch_normalised(torch.tensor([1.0]), 1).tolist() == [0.0]


@pytest.mark.parametrize("estimator", ESTIMATOR_NAMES)
def test_equal_rewards_give_no_advantage(estimator: Estimator) -> None:
    found = token_advantages(torch.full((4,), 0.7), torch.ones(4, 2), group_size=2, estimator=estimator)
    assert found.abs().max() == 0


def test_advantages_stand_only_where_an_answer_token_is_predicted() -> None:
    mask = torch.tensor([[0, 1, 1, 0], [0, 0, 1, 0]])
    found = token_advantages(torch.tensor([2.0, 0.0]), mask, group_size=2, estimator="dr_grpo")
    assert found.tolist() == [[1.0, 1.0, 0.0], [0.0, -1.0, 0.0]]


def test_rewards_and_advantages_are_clipped_when_asked() -> None:
    rewards, mask = torch.tensor([10.0, 0.0]), torch.ones(2, 2)
    clipped = token_advantages(rewards, mask, group_size=2, estimator="dr_grpo", reward_clip=4.0)
    assert clipped.tolist() == [[2.0], [-2.0]]
    clipped = token_advantages(rewards, mask, group_size=2, estimator="dr_grpo", advantage_clip=1.0)
    assert clipped.tolist() == [[1.0], [-1.0]]


def test_rewards_that_form_no_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="3 rewards do not form groups of 2"):
        group_normalised(torch.zeros(3), 2)
    with pytest.raises(ValueError, match=r"one number a row \[B\], got shape \(2, 1\)"):
        group_normalised(torch.zeros(2, 1), 2)


def test_an_unknown_estimator_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="unknown advantage estimator 'gae'; choose from grpo"):
        token_advantages(torch.zeros(2), torch.ones(2, 2), group_size=2, estimator="gae")  # type: ignore[arg-type]  # the point of the test
