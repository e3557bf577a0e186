"""Which rows make a step, from one source or several."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_pipelines.data.order import BLOCK, RowOrder, check_weights


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    batch_size=st.integers(1, 7),
    seed=st.integers(0, 99),
)
def test_without_weights_every_row_comes_once_before_any_comes_twice(
    sizes: list[int], batch_size: int, seed: int
) -> None:
    order, rows = RowOrder(sizes, seed=seed), sum(sizes)
    drawn = [row for step in range(rows) for row in order.batch(step, batch_size=batch_size)]
    passes = [drawn[start : start + rows] for start in range(0, rows * batch_size, rows)]
    assert all(sorted(once) == list(range(rows)) for once in passes)


def test_a_resumed_run_draws_what_an_uninterrupted_one_would_have_drawn() -> None:
    weights, whole = [1.0, 3.0], RowOrder([5, 70], seed=3, weights=[1.0, 3.0])
    steps = [whole.batch(step, batch_size=16) for step in range(20)]
    resumed = RowOrder([5, 70], seed=3, weights=weights)
    assert [resumed.batch(step, batch_size=16) for step in range(11, 20)] == steps[11:]


def test_the_order_depends_on_the_seed_and_on_the_pass() -> None:
    order = RowOrder([50], seed=1)
    first, second = order.batch(0, batch_size=50), order.batch(1, batch_size=50)
    assert sorted(first) == sorted(second)
    assert first != second
    assert RowOrder([50], seed=2).batch(0, batch_size=50) != first


def test_without_shuffling_rows_come_in_the_order_of_the_file() -> None:
    assert RowOrder([3], seed=1, shuffle=False).batch(1, batch_size=2) == [2, 0]


def test_sources_are_drawn_from_by_their_weights_and_not_by_their_sizes() -> None:
    order = RowOrder([1000, 10], seed=0, weights=[1.0, 3.0])
    drawn = [row for step in range(50) for row in order.batch(step, batch_size=100)]
    share = sum(row >= 1000 for row in drawn) / len(drawn)
    assert 0.72 < share < 0.78  # 3/4, and six standard deviations of 5000 draws on either side
    small = Counter(row for row in drawn if row >= 1000)
    assert max(small.values()) - min(small.values()) <= 1


def test_a_source_of_weight_zero_is_never_drawn_from() -> None:
    order = RowOrder([4, 4, 4], seed=0, weights=[1.0, 0.0, 2.0])
    assert not {4, 5, 6, 7} & {row for step in range(50) for row in order.batch(step, batch_size=8)}


def test_a_batch_that_crosses_a_block_of_draws_is_the_same_whatever_was_asked_before() -> None:
    step = BLOCK // 48  # its batch starts before the end of the first block and ends after it
    assert step * 48 < BLOCK < (step + 1) * 48
    fresh = RowOrder([7, 9], seed=5, weights=[2.0, 1.0]).batch(step, batch_size=48)
    used = RowOrder([7, 9], seed=5, weights=[2.0, 1.0])
    turns = [row for earlier in range(step - 3, step + 1) for row in used.batch(earlier, batch_size=48)]
    assert turns[-48:] == fresh
    # Each source still passes over all of its rows before one comes twice.
    first = Counter(row for row in turns if row < 7)
    assert max(first.values()) - min(first.values()) <= 1


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [0.0, 0.0]])
def test_weights_that_do_not_belong_to_the_sources_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="file_weights must be 2 numbers"):
        check_weights(weights, sources=2)


def test_a_source_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        RowOrder([3, 0], seed=0)
