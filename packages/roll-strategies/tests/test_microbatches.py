"""The planner loses no row, keeps its limits, and can be undone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roll_strategies import MicroBatchError, plan_micro_batches

rows_of = st.lists(st.integers(0, 30), max_size=40)


@given(lengths=rows_of, rows=st.integers(1, 9))
def test_planning_by_rows_keeps_order_and_limit_with_balanced_groups(lengths: list[int], rows: int) -> None:
    plan = plan_micro_batches(lengths, rows=rows)
    assert plan.order == tuple(range(len(lengths)))
    sizes = [len(group) for group in plan.groups]
    assert len(sizes) == -(-len(lengths) // rows)
    assert not sizes or (max(sizes) <= rows and max(sizes) - min(sizes) <= 1)


@given(lengths=rows_of, tokens=st.integers(30, 90), packed=st.booleans())
def test_planning_by_tokens_holds_every_row_once_within_the_budget(
    lengths: list[int], tokens: int, packed: bool
) -> None:
    plan = plan_micro_batches(lengths, tokens=tokens, packed=packed)
    assert sorted(plan.order) == list(range(len(lengths)))
    for group in plan.groups:
        assert group
        sizes = [lengths[row] for row in group]
        assert (sum(sizes) if packed else len(sizes) * max(sizes)) <= tokens


@given(lengths=rows_of, rows=st.integers(1, 5), more=st.integers(0, 50), packed=st.booleans())
def test_the_inverse_restores_the_input_order(lengths: list[int], rows: int, more: int, packed: bool) -> None:
    plan = plan_micro_batches(lengths, tokens=40, packed=packed)
    wider = plan.with_count(len(plan.groups) + more)
    assert len(wider.groups) == len(plan.groups) + more
    for candidate in (plan, wider):
        worked = [lengths[row] for row in candidate.order]
        assert [worked[place] for place in candidate.inverse] == lengths


@given(lengths=rows_of, stages=st.integers(1, 5))
def test_the_number_of_micro_batches_is_a_multiple_of_the_stages(lengths: list[int], stages: int) -> None:
    assert len(plan_micro_batches(lengths, rows=2, multiple_of=stages).groups) % stages == 0


def test_groups_are_split_before_empty_ones_are_added() -> None:
    plan = plan_micro_batches([1, 1, 1], rows=3).with_count(5)
    assert plan.groups == ((0,), (1,), (2,), (), ())
    with pytest.raises(MicroBatchError, match="cannot put 5 micro-batches into 2"):
        plan.with_count(2)


def test_a_row_beyond_the_budget_is_named() -> None:
    with pytest.raises(MicroBatchError, match="row 1 has 9 tokens, more than the 8"):
        plan_micro_batches([3, 9], tokens=8)
    with pytest.raises(MicroBatchError, match="at least 1, got 0"):
        plan_micro_batches([3], rows=0)


@given(pairs=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=12), packed=st.booleans())
def test_rows_that_belong_together_are_never_parted(pairs: list[tuple[int, int]], packed: bool) -> None:
    lengths = [length for pair in pairs for length in pair]
    for plan in (
        plan_micro_batches(lengths, rows=5, together=2),
        plan_micro_batches(lengths, tokens=30, packed=packed, together=2),
    ):
        for candidate in (plan, plan.with_count(len(plan.groups) + 3)):
            assert sorted(candidate.order) == list(range(len(lengths)))
            for group in candidate.groups:
                assert all(a % 2 == 0 and b == a + 1 for a, b in zip(group[::2], group[1::2], strict=True))
    with pytest.raises(MicroBatchError, match="do not come in groups of 2"):
        plan_micro_batches([*lengths, 1], rows=4, together=2)
    with pytest.raises(MicroBatchError, match="1 rows cannot hold 2"):
        plan_micro_batches([1, 1], rows=1, together=2)


def test_rows_that_together_exceed_a_micro_batch_are_named_all() -> None:
    with pytest.raises(MicroBatchError, match="rows 2 to 3 belong together and take 9 tokens, more than"):
        plan_micro_batches([1, 1, 5, 4], tokens=8, packed=True, together=2)
    # Without packing both are as long as the longer one.
    with pytest.raises(MicroBatchError, match=r"rows 2 to 3 belong together and take 10 tokens.*at least 10"):
        plan_micro_batches([1, 1, 5, 4], tokens=9, together=2)
    assert plan_micro_batches([1, 1, 5, 4], tokens=10, together=2).groups == ((2, 3), (0, 1))
    with pytest.raises(MicroBatchError, match="row 2 has 5 tokens, more than the 4"):
        plan_micro_batches([1, 1, 5, 4], tokens=4)
