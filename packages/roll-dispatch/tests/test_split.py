from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from roll_dispatch import Broadcast, Direct, Dispatch, Route, Split, SplitError, Topology, plan_call, split

COMPUTE = Dispatch.DP_MP_COMPUTE
TWO = Topology.data_parallel(2)


class Rows:
    """A batch as any package could have one: `chunk`, `__len__`, `concat`, slices and indices."""

    def __init__(self, items: Sequence[object], note: str = "") -> None:
        self.items = list(items)
        self.note = note

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, rows: slice | list[int]) -> "Rows":
        return Rows(self.items[rows] if isinstance(rows, slice) else [self.items[r] for r in rows], self.note)

    def chunk(self, parts: int) -> "list[Rows]":
        size, more = divmod(len(self), parts)
        cuts = [part * size + min(part, more) for part in range(parts + 1)]
        return [self[start:stop] for start, stop in pairwise(cuts)]

    def header(self) -> "Rows":
        return Rows([], f"header of {self.note}")

    @staticmethod
    def concat(parts: "list[Rows]") -> "Rows":
        return Rows([item for part in parts for item in part.items], parts[0].note)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and (self.items, self.note) == (other.items, other.note)

    __hash__ = None  # type: ignore[assignment]  # it can change


class CeilingRows(Rows):
    """Rows whose chunk cuts as torch.chunk does: 5 in 4 gives 2, 2, 1."""

    def chunk(self, parts: int) -> list[Rows]:
        size = max(1, -(-len(self) // parts))
        return [self[start : start + size] for start in range(0, len(self), size)]


class Opaque:
    """A value with no rows."""


def received(value: object, *, mode: Dispatch = COMPUTE, topology: Topology = TWO) -> list[Any]:
    """What each rank receives for one argument, the same by position and by keyword."""
    by_position = [None if part is None else part[0][0] for part in split(mode, topology, value)]
    by_keyword = [None if part is None else part[1]["value"] for part in split(mode, topology, value=value)]
    assert by_position == by_keyword
    return by_position


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ([1, 2, 3], [[1, 2], [3]]),
        ((1, 2, 3), [(1, 2), (3,)]),
        ([], [[], []]),
        (Rows("abc"), [Rows("ab"), Rows("c")]),
        (Split("abc"), ["ab", "c"]),
        (Split(b"abc"), [b"ab", b"c"]),
        (Split([1, 2]), [[1], [2]]),
        ({"ids": [1, 2, 3], "n": 7}, [{"ids": [1, 2], "n": 7}, {"ids": [3], "n": 7}]),
        ({"a": {"b": (1, 2)}, "c": {}}, [{"a": {"b": (1,)}, "c": {}}, {"a": {"b": (2,)}, "c": {}}]),
        (
            {"ids": [1, 2], "stop": Broadcast(["x", "y", "z"])},
            [{"ids": [1], "stop": ["x", "y", "z"]}, {"ids": [2], "stop": ["x", "y", "z"]}],
        ),
        ({"text": Split("ab")}, [{"text": "a"}, {"text": "b"}]),
        (Split({"ids": [1, 2]}), [{"ids": [1]}, {"ids": [2]}]),
    ],
    ids=repr,
)
def test_values_with_rows_are_cut_the_first_part_one_larger(value: object, parts: list[object]) -> None:
    assert received(value) == parts


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        2.5,
        1j,
        "text",
        b"bytes",
        bytearray(b"x"),
        int,
        Opaque(),
        len,
        {"lr": 0.1},
        {},
        memoryview(b"ab"),
    ],
    ids=repr,
)
def test_values_without_rows_go_whole_to_every_rank_as_the_same_object(value: object) -> None:
    assert all(part is value for part in received(value))


def test_a_named_tuple_is_one_value_and_not_rows() -> None:
    from typing import NamedTuple

    class Point(NamedTuple):
        x: int
        y: int

    assert received(Point(1, 2)) == [Point(1, 2), Point(1, 2)]


@pytest.mark.parametrize("value", [[1, 2, 3], "text", Rows("abc"), {"ids": [1]}, None])
def test_broadcast_sends_any_value_whole_as_the_same_object(value: object) -> None:
    assert all(part is value for part in received(Broadcast(value)))


def test_a_dict_of_broadcasts_alone_is_unwrapped() -> None:
    stop = ["x", "y"]
    parts = received({"stop": Broadcast(stop), "n": 1})
    assert parts == [{"stop": stop, "n": 1}] * 2
    assert parts[0]["stop"] is stop


def test_a_call_without_rows_calls_every_rank_with_the_same_arguments() -> None:
    assert split(COMPUTE, TWO) == [((), {}), ((), {})]
    assert split(COMPUTE, TWO, 1, k="v") == [((1,), {"k": "v"})] * 2


def test_keywords_keep_their_names_when_nothing_is_positional() -> None:
    assert split(COMPUTE, TWO, a=[1, 2], b=Rows("xy")) == [
        ((), {"a": [1], "b": Rows("x")}),
        ((), {"a": [2], "b": Rows("y")}),
    ]


def test_worker_parameters_may_be_called_mode_and_topology() -> None:
    assert split(COMPUTE, TWO, mode="m", topology=[1, 2]) == [
        ((), {"mode": "m", "topology": [1]}),
        ((), {"mode": "m", "topology": [2]}),
    ]


def test_the_arguments_are_left_as_they_were() -> None:
    rows, named = [1, 2, 3], {"ids": (4, 5, 6)}
    split(COMPUTE, TWO, rows, named)
    assert rows == [1, 2, 3]
    assert named == {"ids": (4, 5, 6)}


def test_fewer_rows_than_parts_give_empty_parts_that_are_sent() -> None:
    assert received(Rows("a", "n"), topology=Topology.data_parallel(3)) == [
        Rows("a", "n"),
        Rows("", "n"),
        Rows("", "n"),
    ]


def test_empty_parts_are_skipped_when_the_mode_says_so_with_all_their_ranks() -> None:
    skip = COMPUTE.with_options(empty="skip")
    topology = Topology.from_sizes(6, tp=2)
    call = plan_call(skip, topology, ([1, 2],))
    assert call.parts == [(([1],), {})] * 2 + [(([2],), {})] * 2 + [None] * 2
    assert call.collecting_ranks == (0, 2)
    assert call.rows == [1, 1, 1, 1, 0, 0]


def test_with_no_rows_at_all_the_first_part_is_sent_even_when_empty_parts_are_skipped() -> None:
    call = plan_call(COMPUTE.with_options(empty="skip"), Topology.from_sizes(4, tp=2), ([],))
    assert call.parts == [(([],), {}), (([],), {}), None, None]
    assert call.collect({0: []}) == []


def test_skipping_calls_every_rank_when_no_argument_has_rows() -> None:
    assert split(COMPUTE.with_options(empty="skip"), TWO, 5) == [((5,), {})] * 2


def test_padding_repeats_rows_from_the_first_one_on() -> None:
    padded = COMPUTE.with_options(pad=True)
    four = Topology.data_parallel(4)
    assert received([0, 1, 2, 3, 4], mode=padded, topology=four) == [[0, 1], [2, 3], [4, 0], [1, 2]]
    assert received((0,), mode=padded, topology=four) == [(0,)] * 4
    assert received(Rows("ab"), mode=padded, topology=Topology.data_parallel(5)) == [Rows(c) for c in "ababa"]
    assert received(Split("abc"), mode=padded) == ["ab", "ca"]


def test_padding_leaves_rows_alone_that_fill_the_parts_or_are_none() -> None:
    padded = COMPUTE.with_options(pad=True)
    assert received([1, 2], mode=padded) == [[1], [2]]
    assert received([], mode=padded) == [[], []]
    assert received("whole", mode=padded) == ["whole", "whole"]


def test_padding_counts_rows_without_the_repeated_ones() -> None:
    call = plan_call(COMPUTE.with_options(pad=True), Topology.from_sizes(8, tp=2), ([0, 1, 2, 3, 4],))
    assert call.rows == [2, 2, 2, 2, 1, 1, 0, 0]


def test_ranks_without_rows_receive_the_header_that_a_value_has() -> None:
    topology = Topology.from_sizes(2, tp=2)
    assert received(Rows("abc", "n"), mode=Dispatch.DP_MP_DISPATCH_FIRST, topology=topology) == [
        Rows("abc", "n"),
        Rows([], "header of n"),
    ]


@pytest.mark.parametrize(
    ("value", "empty"),
    [([1], []), ((1,), ()), (Split("a"), ""), (Split(b"a"), b""), (CeilingRows("a"), Rows([], "header of "))],
)
def test_ranks_without_rows_receive_no_rows_of_the_same_kind(value: object, empty: object) -> None:
    topology = Topology.from_sizes(2, tp=2)
    assert received(value, mode=Dispatch.DP_MP_DISPATCH_FIRST, topology=topology)[1] == empty


def test_all_ranks_without_rows_share_one_header() -> None:
    topology = Topology.from_sizes(8, tp=2, pp=2)
    parts = split(Dispatch.DP_MP_DISPATCH_FIRST, topology, Rows("abcd"))
    assert len({id(part) for part in parts}) == 3


def test_skipping_under_dispatch_first_skips_all_ranks_of_an_empty_part() -> None:
    skip = Dispatch.DP_MP_DISPATCH_FIRST.with_options(empty="skip")
    assert split(skip, Topology.from_sizes(4, tp=2), [7]) == [(([7],), {}), (([],), {}), None, None]


@pytest.mark.parametrize(
    ("args", "kwargs", "sentence"),
    [
        (
            ([1, 2], [1, 2, 3]),
            {},
            "DP_MP_COMPUTE cuts all arguments at the same rows over dp size 2, but they differ in their "
            "number of rows: argument 0 has 2, argument 1 has 3; wrap those that every rank needs whole "
            "in Broadcast(...)",
        ),
        (
            ([1],),
            {"x": {"ids": []}},
            "DP_MP_COMPUTE cuts all arguments at the same rows over dp size 2, but they differ in their "
            "number of rows: argument 0 has 1, argument 'x'['ids'] has 0; wrap those that every rank "
            "needs whole in Broadcast(...)",
        ),
        (
            ({1, 2},),
            {},
            "DP_MP_COMPUTE: argument 0: a set has a length but no rule that cuts it into rows: give it "
            "chunk(n) and concat, teach it with register_splittable(set, ...), or wrap it in "
            "Broadcast(...) to send it whole",
        ),
        (
            (),
            {"x": Split(3)},
            "DP_MP_COMPUTE: argument 'x' is Split(...) around a int, which has no rows; pass it bare to "
            "send it to every rank",
        ),
        (
            (Split({"lr": 1}),),
            {},
            "DP_MP_COMPUTE: argument 0 is Split(...) around a dict, which has no rows; pass it bare to "
            "send it to every rank",
        ),
        (
            (Direct([1, 2], to=[0, 1]),),
            {},
            "DP_MP_COMPUTE: argument 0 is Direct(...), but this mode decides itself where rows go; pass "
            "it bare, or register the method with Dispatch.DIRECT",
        ),
    ],
)
def test_arguments_that_cannot_be_split_are_refused_in_words(
    args: tuple[object, ...], kwargs: dict[str, object], sentence: str
) -> None:
    with pytest.raises(SplitError) as caught:
        split(COMPUTE, TWO, *args, **kwargs)
    assert str(caught.value) == sentence


def test_a_chunk_that_cuts_elsewhere_is_refused_with_both_sizes() -> None:
    with pytest.raises(SplitError) as caught:
        split(COMPUTE, Topology.data_parallel(4), batch=CeilingRows("abcde"))
    assert str(caught.value) == (
        "DP_MP_COMPUTE: argument 'batch': the rule of its type CeilingRows gives parts of [2, 2, 1] rows "
        "where [2, 1, 1, 1] are due; correct its chunk, slices or indices, or use register_splittable"
    )


def test_indices_that_pick_other_rows_are_refused() -> None:
    class Deaf(Rows):
        def __getitem__(self, rows: slice | list[int]) -> Rows:
            return Rows(self.items)

    with pytest.raises(
        SplitError, match=r"rule of its type Deaf gives parts of \[3\] rows where \[1\] are due"
    ):
        plan_call(Dispatch.DIRECT, TWO, (Direct(Deaf("abc"), to=[0, 1, 1]),))


def test_an_error_inside_a_cut_says_which_argument_was_cut() -> None:
    class Sore(Rows):
        def chunk(self, parts: int) -> list[Rows]:
            raise RuntimeError("it hurts")

    with pytest.raises(RuntimeError, match="it hurts") as caught:
        split(COMPUTE, TWO, [1, 2], Sore("ab"))
    assert caught.value.__notes__ == ["DP_MP_COMPUTE: raised while argument 1 (Sore) was cut"]


def test_messages_name_the_parameters_of_a_registered_method() -> None:
    route = Route(dispatch_mode=COMPUTE, parameters=("batch", "labels"))
    with pytest.raises(SplitError, match="argument 'batch' has 1, argument 'labels' has 2, argument 2 has 3"):
        plan_call(route, TWO, ([1], [1, 2], [1, 2, 3]))


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ([1], "a list of 1"),
        ((1, 2, 3), "a tuple of 3"),
        ("ab", "a str"),
        (7, "a int"),
        (None, "a NoneType"),
        (Rows("ab"), "a Rows"),
        (Split([1, 2]), "a Split"),
    ],
)
def test_all_to_all_refuses_what_is_not_one_value_per_rank(value: object, found: str) -> None:
    for kwargs in (False, True):
        with pytest.raises(SplitError) as caught:
            split(Dispatch.ALL_TO_ALL, TWO, **{"v": value}) if kwargs else split(
                Dispatch.ALL_TO_ALL, TWO, value
            )
        assert str(caught.value) == (
            f"ALL_TO_ALL: argument {repr('v') if kwargs else 0} is {found}, but every argument is a list or "
            "tuple of 2 values, one per rank; wrap a value that every rank receives in Broadcast(...)"
        )


def test_all_to_all_without_arguments_calls_every_rank() -> None:
    assert split(Dispatch.ALL_TO_ALL, TWO) == [((), {}), ((), {})]
    assert split(Dispatch.ALL_TO_ALL, TWO, k=[1, 2]) == [((), {"k": 1}), ((), {"k": 2})]


def test_all_to_all_names_the_parameters_of_a_registered_method() -> None:
    route = Route(dispatch_mode=Dispatch.ALL_TO_ALL, parameters=("seeds",))
    with pytest.raises(SplitError, match="argument 'seeds' is a list of 1"):
        plan_call(route, TWO, ([1],))


def test_one_to_all_takes_broadcast_off_at_every_depth() -> None:
    value = {"a": Broadcast([1]), "b": {"c": Broadcast(2)}, "d": {"e": 3}}
    assert (
        split(Dispatch.ONE_TO_ALL, TWO, Broadcast(5), k=value)
        == [((5,), {"k": {"a": [1], "b": {"c": 2}, "d": {"e": 3}}})] * 2
    )


@pytest.mark.parametrize("wrapped", [Split([1]), Direct([1], to=[0])])
def test_one_to_all_refuses_what_asks_to_be_cut(wrapped: object) -> None:
    name = type(wrapped).__name__
    with pytest.raises(SplitError) as caught:
        split(Dispatch.ONE_TO_ALL, TWO, {"rows": wrapped})
    assert str(caught.value) == (
        f"ONE_TO_ALL cuts no argument into rows, but argument 0['rows'] is {name}(...); pass it bare"
    )
    with pytest.raises(
        SplitError, match=f"^ONE_TO_ALL cuts no argument into rows, but argument 'k' is {name}"
    ):
        split(Dispatch.ONE_TO_ALL, TWO, k=wrapped)
    with pytest.raises(SplitError, match=f"argument 'x' is {name}"):
        plan_call(Route(dispatch_mode=Dispatch.ONE_TO_ALL, parameters=("x",)), TWO, (wrapped,))


def test_wrappers_print_what_they_hold() -> None:
    assert repr(Broadcast([1])) == "Broadcast([1])"
    assert repr(Split("ab")) == "Split('ab')"
    assert repr(Direct([5], to=(0,))) == "Direct([5], to=[0])"


def test_a_mode_is_known_by_its_name_too() -> None:
    assert split("DP_MP_COMPUTE", TWO, [1, 2]) == split(COMPUTE, TWO, [1, 2])
