from collections.abc import Sequence
from typing import Any

import pytest

from roll_dispatch import (
    CollectError,
    Direct,
    Dispatch,
    Route,
    Topology,
    collect,
    plan_call,
    register_dispatch,
)

COMPUTE = Dispatch.DP_MP_COMPUTE
TWO = Topology.data_parallel(2)


class Rows:
    """Rows that can be joined."""

    def __init__(self, items: Sequence[object]) -> None:
        self.items = list(items)

    def __len__(self) -> int:
        return len(self.items)

    def chunk(self, parts: int) -> "list[Rows]":
        raise NotImplementedError

    def __getitem__(self, rows: slice | list[int]) -> "Rows":
        return Rows(self.items[rows] if isinstance(rows, slice) else [self.items[r] for r in rows])

    @staticmethod
    def concat(parts: "list[Rows]") -> "Rows":
        return Rows([item for part in parts for item in part.items])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and self.items == other.items

    __hash__ = None  # type: ignore[assignment]  # it can change


class Unjoinable:
    """Rows that cannot be joined."""

    def __len__(self) -> int:
        return 1

    def chunk(self, parts: int) -> list[object]:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("outputs", "result"),
    [
        ([[1, 2], [3]], [1, 2, 3]),
        ([[], [3]], [3]),
        ([[], []], []),
        ([(1, 2), (3,)], (1, 2, 3)),
        ([Rows("ab"), Rows("c")], Rows("abc")),
        ([None, None], None),
        ([1, 2.5], [1, 2.5]),
        (["a", "b"], ["a", "b"]),
        ([{"loss": 1}, {"loss": 2}], [{"loss": 1}, {"loss": 2}]),
        ([{"loss": [1]}, {"loss": [2]}], [{"loss": [1]}, {"loss": [2]}]),
        ([None, 2], [None, 2]),
        ([True, {"a": 1}], [True, {"a": 1}]),
        ([{1}, {2}], [{1}, {2}]),
    ],
    ids=repr,
)
def test_rows_are_joined_and_single_values_are_listed_per_dp_rank(
    outputs: list[object], result: object
) -> None:
    assert collect(COMPUTE, TWO, outputs) == result


def test_joining_makes_a_new_list_even_from_one_rank() -> None:
    part = [1, 2]
    found = collect(COMPUTE, Topology.data_parallel(1), [part])
    assert found == part
    assert found is not part


def test_results_come_in_dp_order_when_ranks_are_numbered_otherwise() -> None:
    ranks = list(TWO)
    turned = Topology([ranks[0].replace(dp_rank=1), ranks[1].replace(dp_rank=0)])
    assert collect(COMPUTE, turned, [["last"], ["first"]]) == ["first", "last"]
    assert collect(COMPUTE, turned, {0: "last", 1: "first"}) == ["first", "last"]


@pytest.mark.parametrize(
    ("outputs", "told"),
    [
        ([[1], None], "rank 0 a list, rank 1 a NoneType"),
        ([[1], (2,)], "rank 0 a list, rank 1 a tuple"),
        ([3, [1]], "rank 0 a int, rank 1 a list"),
        ([Rows("a"), [1]], "rank 0 a Rows, rank 1 a list"),
        ([Rows("a"), {1}], "rank 0 a Rows, rank 1 a set"),
    ],
)
def test_different_kinds_from_answering_ranks_are_refused(outputs: list[object], told: str) -> None:
    with pytest.raises(CollectError) as caught:
        collect(COMPUTE, TWO, outputs)
    assert str(caught.value) == (
        f"DP_MP_COMPUTE: the answering ranks return different kinds ({told}); return the same kind from "
        "each (an empty one where there are no rows), or declare a reducer"
    )


def test_lists_of_different_classes_are_of_one_kind() -> None:
    class Mine(list[int]):
        pass

    assert collect(COMPUTE, TWO, [Mine([1]), [2]]) == [1, 2]


def test_rows_that_cannot_be_joined_are_refused_with_the_mode() -> None:
    with pytest.raises(CollectError) as caught:
        collect(COMPUTE, TWO, [Unjoinable(), Unjoinable()])
    assert str(caught.value) == (
        "DP_MP_COMPUTE: a Unjoinable can be cut but not joined: give it concat, or use register_splittable"
    )


def test_an_error_inside_a_join_says_whose_outputs_were_joined() -> None:
    class Sore(Rows):
        @staticmethod
        def concat(parts: list[Rows]) -> Rows:
            raise RuntimeError("columns differ")

    with pytest.raises(RuntimeError, match="columns differ") as caught:
        collect(COMPUTE, TWO, [Sore("a"), Sore("b")])
    assert caught.value.__notes__ == ["DP_MP_COMPUTE: raised while the outputs of ranks [0, 1] were joined"]


def test_too_few_or_too_many_outputs_are_refused() -> None:
    for outputs in ([[1]], [[1], [2], [3]]):
        with pytest.raises(CollectError) as caught:
            collect(COMPUTE, TWO, outputs)
        assert str(caught.value) == (
            f"DP_MP_COMPUTE: {len(outputs)} outputs for 2 ranks; give one per rank in rank order, or a "
            "mapping from rank to output"
        )


def test_a_mapping_without_an_answering_rank_is_refused() -> None:
    with pytest.raises(CollectError) as caught:
        collect(COMPUTE, Topology.from_sizes(4, tp=2), {0: [1], 3: [2]})
    assert str(caught.value) == (
        "DP_MP_COMPUTE: no output from answering rank [2], only from [0, 3]; the result is made of the "
        "outputs of [0, 2]"
    )


def test_a_mapping_may_hold_more_than_the_answering_ranks() -> None:
    assert collect(COMPUTE, Topology.from_sizes(4, tp=2), {3: "x", 2: [2], 0: [1], 1: None}) == [1, 2]


def test_a_mode_that_lets_a_rank_answer_twice_is_refused() -> None:
    twice = register_dispatch(
        "TWICE",
        split=lambda topology, args, kwargs: [(args, kwargs)] * topology.world_size,
        collect=lambda topology, outputs: list(outputs.values()),
        collecting=lambda topology: [0, 1, 0],
    )
    with pytest.raises(
        CollectError, match=r"TWICE: rank \[0\] would answer twice; name each answering rank once"
    ):
        collect(twice, TWO, ["a", "b"])
    with pytest.raises(CollectError, match="would answer twice"):
        plan_call(twice, TWO, ()).collect(["a", "b"])


@pytest.mark.parametrize("mode", [Dispatch.DIRECT, Dispatch.balanced("c"), COMPUTE.with_options(pad=True)])
def test_modes_whose_arguments_decide_the_order_are_joined_by_their_call_alone(mode: Dispatch) -> None:
    with pytest.raises(CollectError) as caught:
        collect(mode, TWO, [[1], [2]])
    assert str(caught.value) == (
        f"{mode.name}: the arguments of the call decide how its outputs are joined; use plan_call(mode, "
        "topology, args, kwargs).collect(outputs)"
    )


def test_skipping_empty_parts_needs_no_call_to_join() -> None:
    assert collect(COMPUTE.with_options(empty="skip"), TWO, [[1], []]) == [1]


def test_padding_is_taken_off_each_rank_s_output() -> None:
    call = plan_call(COMPUTE.with_options(pad=True), Topology.data_parallel(4), ([0, 1, 2, 3, 4],))
    assert call.collect([["a", "b"], ["c", "d"], ["e", "?"], ["?", "?"]]) == ["a", "b", "c", "d", "e"]
    assert call.collect([Rows("ab"), Rows("cd"), Rows("e?"), Rows("??")]) == Rows("abcde")
    assert call.note == "repeated rows are taken off"


def test_padding_leaves_single_values_per_dp_rank_alone() -> None:
    call = plan_call(COMPUTE.with_options(pad=True), TWO, ([1, 2, 3],))
    assert call.collect([0.5, 0.25]) == [0.5, 0.25]
    assert call.collect([None, None]) is None


def test_padded_rows_that_cannot_be_told_apart_are_refused() -> None:
    call = plan_call(COMPUTE.with_options(pad=True), TWO, ([1, 2, 3],))
    with pytest.raises(CollectError) as caught:
        call.collect([[1, 2], [3, 1, 1]])
    assert str(caught.value) == (
        "DP_MP_COMPUTE: rank 1 was sent 2 rows and returned 3, and the rows of this call were padded, so a "
        "result has a row per row sent; return that, a dict or number per rank, or declare a reducer"
    )


def test_direct_puts_rows_back_in_the_order_of_the_caller() -> None:
    call = plan_call(Dispatch.DIRECT, Topology.data_parallel(3), (Direct(list("abcd"), to=[2, 0, 2, 0]),))
    assert call.parts == [((["b", "d"],), {}), None, ((["a", "c"],), {})]
    assert call.collecting_ranks == (0, 2)
    assert call.rows == [2, 0, 2]
    assert call.collect({0: ["B", "D"], 2: ["A", "C"]}) == ["A", "B", "C", "D"]
    assert call.collect({0: (1, 3), 2: (0, 2)}) == (0, 1, 2, 3)
    assert call.collect({0: Rows("BD"), 2: Rows("AC")}) == Rows("ABCD")
    assert call.collect({0: {"n": 2}, 2: {"n": 2}}) == [{"n": 2}, {"n": 2}]
    assert call.collect({0: None, 2: None}) is None
    assert call.note == "rows are put back in the caller's order"


def test_regrouped_rows_that_do_not_answer_row_by_row_are_refused() -> None:
    call = plan_call(Dispatch.DIRECT, TWO, (Direct(list("abc"), to=[1, 0, 1]),))
    with pytest.raises(
        CollectError, match="DIRECT: rank 1 was sent 2 rows and returned 1, and the rows of this call"
    ):
        call.collect([["b"], ["a"]])


def test_a_joined_call_without_padding_has_no_note() -> None:
    assert plan_call(COMPUTE, TWO, ([1, 2],)).note == ""
    assert (
        repr(plan_call(COMPUTE.with_options(empty="skip"), TWO, ([1],)))
        == "<Call DP_MP_COMPUTE: 1 of 2 ranks>"
    )


def reduced(reducer: Any, outputs: list[object], *, args: tuple[object, ...] = ([1, 2, 3],)) -> object:
    """The result of a call with a reducer; 2 rows go to rank 0 and 1 to rank 1."""
    return plan_call(Route(dispatch_mode=COMPUTE, reducer=reducer), TWO, args).collect(outputs)


@pytest.mark.parametrize(
    ("reducer", "outputs", "result"),
    [
        ("sum", [1, 2], 3),
        ("mean", [1.0, 4.0], 2.0),  # (2 x 1 + 1 x 4) / 3
        ("min", [3, 1], 1),
        ("max", [3, 5], 5),
        ("first", [{"any": "thing"}, None], {"any": "thing"}),
        ("sum", [{"a": 1, "b": {"c": 2}}, {"a": 10, "b": {"c": 20}}], {"a": 11, "b": {"c": 22}}),
        ("mean", [{"loss": 3.0}, {"loss": 6.0}], {"loss": 4.0}),
        (lambda outputs: outputs[::-1], [1, 2], [2, 1]),
        (len, [[1], [2]], 2),
    ],
)
def test_a_declared_reducer_merges_the_outputs(reducer: Any, outputs: list[object], result: object) -> None:
    assert reduced(reducer, outputs) == result


def test_a_mean_over_calls_without_rows_weighs_ranks_alike() -> None:
    assert reduced("mean", [1.0, 2.0], args=(5,)) == 1.5
    assert reduced("mean", [1.0, 2.0], args=([],)) == 1.5


def test_a_reducer_of_a_padded_call_sees_the_rows_of_the_caller_alone() -> None:
    padded = Route(dispatch_mode=COMPUTE.with_options(pad=True), reducer=sum_of_all)
    assert plan_call(padded, TWO, ([1, 2, 3],)).collect([[1, 2], [3, 1]]) == 6


def sum_of_all(outputs: list[list[int]]) -> int:
    return sum(sum(output) for output in outputs)


def test_a_reducer_applies_to_modes_that_collect_all() -> None:
    route = Route(dispatch_mode=Dispatch.ONE_TO_ALL, reducer="max")
    assert plan_call(route, TWO, ()).collect([4, 9]) == 9


@pytest.mark.parametrize(
    ("outputs", "sentence"),
    [
        ([{"a": 1}, {"b": 1}], "merges dicts key by key, but rank 1 has ['b'] and rank 0 has ['a']"),
        ([[1], [2]], "merges numbers, but rank 0 returned a list"),
        ([1, None], "merges numbers, but rank 1 returned a NoneType"),
        ([{"a": 1}, 2], "merges numbers, but rank 0 returned a dict"),
        (["x", "y"], "merges numbers, but rank 0 returned a str"),
    ],
)
def test_a_named_reducer_refuses_what_it_cannot_merge(outputs: list[object], sentence: str) -> None:
    with pytest.raises(CollectError) as caught:
        reduced("sum", outputs)
    assert f"DP_MP_COMPUTE: reducer 'sum' {sentence}" in str(caught.value)
