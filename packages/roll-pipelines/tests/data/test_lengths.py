"""The length policies, and what they count."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_pipelines.data.lengths import Fitted, LengthCount, LengthPolicy, fit

POLICIES: tuple[LengthPolicy, ...] = ("drop", "truncate_left", "truncate_right")

tokens = st.lists(st.integers(1, 99), min_size=1, max_size=12)


def fitted(policy: LengthPolicy, prompt: list[int], answers: list[list[int]], limit: int) -> Fitted | None:
    return fit(prompt, answers, max_length=limit, policy=policy, count=LengthCount())


def test_a_row_that_fits_is_kept_as_it_is() -> None:
    count = LengthCount()
    row = fit([1, 2], [[3], [4, 5]], max_length=4, policy="drop", count=count)
    assert row == Fitted((1, 2), ((3,), (4, 5)))
    assert count.metrics() == {"data/rows_kept": 1.0, "data/rows_truncated": 0.0, "data/rows_dropped": 0.0}


def test_drop_leaves_a_row_out_when_one_of_its_answers_is_too_long() -> None:
    assert fitted("drop", [1, 2], [[3], [4, 5, 6]], 4) is None


def test_truncating_left_keeps_whole_answers_and_one_prompt_for_all_of_them() -> None:
    assert fitted("truncate_left", [1, 2, 3], [[4], [5, 6]], 4) == Fitted((2, 3), ((4,), (5, 6)))


def test_truncating_left_shortens_answers_from_their_start_only_when_one_prompt_token_is_left() -> None:
    assert fitted("truncate_left", [1, 2], [[3, 4, 5], [6]], 3) == Fitted((2,), ((4, 5), (6,)))


def test_truncating_right_keeps_the_prompt_and_the_beginning_of_each_answer() -> None:
    assert fitted("truncate_right", [1, 2], [[3, 4, 5], [6]], 4) == Fitted((1, 2), ((3, 4), (6,)))


def test_a_row_of_which_an_answer_is_cut_away_whole_is_dropped_and_counted_so() -> None:
    count = LengthCount()
    assert fit([1, 2, 3, 4], [[5], [6]], max_length=4, policy="truncate_right", count=count) is None
    assert (count.kept, count.truncated, count.dropped) == (0, 0, 1)


def test_an_answer_that_was_empty_before_is_not_missed() -> None:
    assert fitted("truncate_left", [1, 2, 3], [[4, 5], []], 4) == Fitted((2, 3), ((4, 5), ()))


@pytest.mark.parametrize("policy", POLICIES)
@settings(deadline=None)
@given(prompt=tokens, answers=st.lists(tokens, min_size=1, max_size=3), limit=st.integers(2, 20))
def test_nothing_is_longer_than_the_limit_and_every_row_is_counted_once(
    policy: LengthPolicy, prompt: list[int], answers: list[list[int]], limit: int
) -> None:
    count = LengthCount()
    row = fit(prompt, answers, max_length=limit, policy=policy, count=count)
    assert count.kept + count.truncated + count.dropped == 1
    assert (row is None) == (count.dropped == 1)
    if row is not None:
        assert all(len(row.prompt_ids) + len(answer) <= limit for answer in row.answers)
        assert all(row.answers)
        assert (row == Fitted(tuple(prompt), tuple(map(tuple, answers)))) == (count.kept == 1)


def test_counts_add_up() -> None:
    assert LengthCount(1, 2, 3) + LengthCount(10, 20, 30) == LengthCount(11, 22, 33)
