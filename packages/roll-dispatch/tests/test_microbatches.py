from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from roll_dispatch import BalanceError, balance, plan_micro_batches


@cache
def fewest(tokens: tuple[int, ...], budget: int) -> int:
    """The least number of micro-batches that hold these rows, by trying everything."""
    best = len(tokens)

    def place(row: int, bins: list[int]) -> None:
        nonlocal best
        if len(bins) >= best:
            return
        if row == len(tokens):
            best = len(bins)
            return
        for at, load in enumerate(bins):
            if load + tokens[row] <= budget:
                bins[at] += tokens[row]
                place(row + 1, bins)
                bins[at] -= tokens[row]
        place(row + 1, [*bins, tokens[row]])

    place(0, [])
    return best


@settings(deadline=None, max_examples=200)
@given(
    tokens=st.lists(st.integers(0, 10), max_size=9),
    dp_size=st.integers(1, 3),
    budget=st.integers(10, 14),
    multiple_of=st.integers(1, 3),
    equal_counts=st.booleans(),
)
@example(tokens=[6, 6, 6], dp_size=2, budget=10, multiple_of=1, equal_counts=False)
@example(tokens=[0, 0, 0, 10], dp_size=1, budget=10, multiple_of=3, equal_counts=False)
@example(tokens=[5, 5, 4, 4, 4, 3, 3, 3], dp_size=1, budget=10, multiple_of=1, equal_counts=False)
def test_the_plan_keeps_budget_count_and_bound(
    tokens: list[int], dp_size: int, budget: int, multiple_of: int, equal_counts: bool
) -> None:
    plan = plan_micro_batches(
        tokens, dp_size=dp_size, max_tokens=budget, multiple_of=multiple_of, equal_counts=equal_counts
    )

    assert sorted(plan.order) == list(range(len(tokens)))
    assert len(plan.groups) == dp_size
    assert {len(rank) for rank in plan.groups} == {plan.num_micro_batches}
    assert plan.num_micro_batches % multiple_of == 0
    for rank, loads in zip(plan.groups, plan.tokens, strict=True):
        assert list(loads) == [sum(tokens[row] for row in rows) for rows in rank]
        assert max(loads, default=0) <= budget
        rows = sum(map(len, rank))
        assert sum(bool(group) for group in rank) == min(rows, plan.num_micro_batches)
    needed = max(fewest(tuple(tokens[row] for rows in rank for row in rows), budget) for rank in plan.groups)
    most = (11 * needed + 6) // 9  # first-fit-decreasing: at most 11/9 of the least + 2/3
    assert plan.num_micro_batches <= -(-most // multiple_of) * multiple_of
    shares = {frozenset(row for rows in rank for row in rows) for rank in plan.groups}
    assert shares == set(map(frozenset, balance(tokens, dp_size, equal_counts=equal_counts).groups))


def loads_of(tokens: Sequence[int], groups: Sequence[Sequence[int]]) -> list[int]:
    return [sum(tokens[row] for row in group) for group in groups]


def test_micro_batches_of_a_rank_have_nearly_equal_tokens_where_the_budget_allows() -> None:
    tokens = [5, 5, 4, 4, 3, 3]
    plan = plan_micro_batches(tokens, dp_size=1, max_tokens=13)
    assert loads_of(tokens, plan.groups[0]) == [12, 12]


def test_a_packing_that_only_first_fit_finds_is_kept_within_the_budget() -> None:
    tokens = [6, 4, 6, 4, 5, 5, 10]
    plan = plan_micro_batches(tokens, dp_size=1, max_tokens=10)
    assert plan.num_micro_batches == 4
    assert plan.tokens == ((10, 10, 10, 10),)


def test_undo_restores_the_order() -> None:
    tokens = [3, 9, 4, 7, 1, 2, 8]
    plan = plan_micro_batches(tokens, dp_size=2, max_tokens=10)
    assert plan.undo([tokens[row] for row in plan.order]) == tokens
    with pytest.raises(BalanceError, match="one item per row: 7, not 1"):
        plan.undo([1])


def test_without_rows_there_are_no_micro_batches() -> None:
    plan = plan_micro_batches([], dp_size=2, max_tokens=10, multiple_of=4)
    assert plan.groups == ((), ())
    assert plan.num_micro_batches == 0
    assert plan.order == ()


def test_many_rows_are_planned_within_the_budget() -> None:
    tokens = [(7919 * row) % 997 + 1 for row in range(20_000)]
    plan = plan_micro_batches(tokens, dp_size=8, max_tokens=4096)
    assert sorted(plan.order) == list(range(20_000))
    assert max(map(max, plan.tokens)) <= 4096
    assert plan.num_micro_batches * 8 * 4096 <= 1.05 * sum(tokens) + 8 * 4096


def test_a_row_over_the_budget_is_named() -> None:
    with pytest.raises(BalanceError) as caught:
        plan_micro_batches([1, 12, 30], dp_size=1, max_tokens=10)
    assert str(caught.value) == (
        "a micro-batch has at most 10 tokens, but row 1 has 12, row 2 has 30 (2 in all); raise max_tokens "
        "or shorten these rows"
    )


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(BalanceError, match="multiple of 1 or more, not of 0"):
        plan_micro_batches([1], dp_size=1, max_tokens=10, multiple_of=0)
    with pytest.raises(BalanceError, match="1 or more parts, not 0"):
        plan_micro_batches([1], dp_size=0, max_tokens=10)
