from collections.abc import Iterator, Sequence
from itertools import product
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from roll_dispatch import BalanceError, balance

METHODS: tuple[Literal["kk", "greedy"], ...] = ("kk", "greedy")


def assignments(rows: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to give each row a part."""
    return product(range(parts), repeat=rows)


def best(costs: Sequence[int], parts: int, *, equal_counts: bool) -> int:
    """The least possible largest load, by trying everything."""
    least = sum(costs)
    for given_parts in assignments(len(costs), parts):
        counts, loads = [0] * parts, [0] * parts
        for cost, part in zip(costs, given_parts, strict=True):
            counts[part] += 1
            loads[part] += cost
        if not equal_counts or max(counts) - min(counts) <= 1:
            least = min(least, max(loads))
    return least


small_costs = st.lists(st.integers(0, 12), max_size=7)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("equal_counts", [True, False])
@settings(deadline=None, max_examples=60)
@given(costs=small_costs, parts=st.integers(1, 3))
@example(costs=[5, 5, 4, 4, 3, 3, 3], parts=3)  # where Graham's bound is reached: 11 against 9
@example(costs=[8, 7, 6, 5, 4], parts=2)
@example(costs=[0, 0, 0], parts=2)
def test_the_stated_bounds_hold_against_brute_force(
    method: Literal["kk", "greedy"], equal_counts: bool, costs: list[int], parts: int
) -> None:
    division = balance(costs, parts, equal_counts=equal_counts, method=method)

    assert sorted(division.order) == list(range(len(costs)))
    assert len(division.groups) == parts
    assert list(division.loads) == [sum(costs[row] for row in group) for group in division.groups]
    sizes = [len(group) for group in division.groups]
    largest, optimum, heaviest = (
        max(division.loads),
        best(costs, parts, equal_counts=equal_counts),
        max(costs, default=0),
    )
    if equal_counts:
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)
    else:
        assert 3 * parts * largest <= (4 * parts - 1) * optimum  # (4/3 - 1/(3m)) OPT
    assert division.spread <= heaviest
    assert parts * largest <= sum(costs) + (parts - 1) * heaviest
    assert parts * largest <= (2 * parts - 1) * optimum  # (2 - 1/m) OPT


@settings(deadline=None, max_examples=60)
@given(costs=small_costs, parts=st.integers(1, 3))
def test_differencing_is_never_worse_than_greedy(costs: list[int], parts: int) -> None:
    for equal_counts in (True, False):
        kk = balance(costs, parts, equal_counts=equal_counts, method="kk")
        greedy = balance(costs, parts, equal_counts=equal_counts, method="greedy")
        assert max(kk.loads) <= max(greedy.loads)


def test_differencing_finds_what_greedy_misses() -> None:
    costs = [
        8,
        7,
        6,
        5,
        4,
    ]  # worked out by hand: greedy puts 8, 5, 4 against 7, 6; differencing 8, 6 against 7, 5, 4
    assert balance(costs, 2, equal_counts=False, method="greedy").loads == (17, 13)
    assert sorted(balance(costs, 2, equal_counts=False, method="kk").loads) == [14, 16]


def test_equal_counts_spread_large_rows() -> None:
    division = balance([9, 9, 9, 1, 1, 1], 3)
    assert division.loads == (10, 10, 10)
    assert [len(group) for group in division.groups] == [2, 2, 2]


@given(rows=st.integers(0, 200), parts=st.integers(1, 9))
def test_undo_restores_the_order(rows: int, parts: int) -> None:
    division = balance([(7 * row) % 13 for row in range(rows)], parts)
    values = [f"row {row}" for row in range(rows)]
    grouped = [values[row] for row in division.order]
    assert division.undo(grouped) == values


def test_undo_refuses_another_number_of_rows() -> None:
    with pytest.raises(BalanceError, match="undo takes one item per row: 3, not 2"):
        balance([1, 2, 3], 2).undo(["a", "b"])


@pytest.mark.parametrize("method", METHODS)
def test_no_rows_give_empty_groups(method: Literal["kk", "greedy"]) -> None:
    for equal_counts in (True, False):
        division = balance([], 3, equal_counts=equal_counts, method=method)
        assert division.groups == ((), (), ())
        assert division.spread == 0


def test_the_same_costs_give_the_same_groups() -> None:
    costs = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    assert balance(costs, 3) == balance(tuple(costs), 3)


def test_auto_takes_the_better_method_while_the_work_is_small_and_the_faster_one_beyond() -> None:
    costs = [8, 7, 6, 5, 4]
    assert balance(costs, 2, equal_counts=False) == balance(costs, 2, equal_counts=False, method="kk")
    many = [(31 * row) % 977 for row in range(100_001)]
    assert balance(many, 2) == balance(many, 2, method="greedy")


@pytest.mark.parametrize("equal_counts", [True, False])
def test_the_greedy_method_divides_a_hundred_thousand_rows_within_its_bound(equal_counts: bool) -> None:
    costs = [(7919 * row) % 4093 for row in range(100_000)]
    division = balance(costs, 64, equal_counts=equal_counts, method="greedy")
    assert sorted(division.order) == list(range(100_000))
    assert division.spread <= max(costs)


@pytest.mark.parametrize(
    ("costs", "parts", "method", "sentence"),
    [
        ([1], 0, "auto", "rows are divided into 1 or more parts, not 0"),
        ([1], 2, "best", "method is 'auto', 'kk' or 'greedy', not 'best'"),
        ([1, -2], 2, "auto", r"a cost is finite and not negative, but row 1 costs -2 \(1 in all\)"),
        ([float("nan"), float("inf")], 2, "auto", r"row 0 costs nan, row 1 costs inf \(2 in all\)"),
    ],
)
def test_what_cannot_be_divided_is_refused(
    costs: list[float], parts: int, method: str, sentence: str
) -> None:
    with pytest.raises(BalanceError, match=sentence):
        balance(costs, parts, method=method)  # type: ignore[arg-type]  # on purpose
