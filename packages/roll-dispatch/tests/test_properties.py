"""Properties 15 to 19 of the dispatch, over every dp, tp, pp, cp in 1..3 and over random rank orders."""

from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_dispatch import (
    Broadcast,
    CollectError,
    Direct,
    Dispatch,
    Split,
    Topology,
    TopologyError,
    collect,
    plan_call,
    split,
)
from roll_dispatch.testing import bijections, check_mode

ROWS = (0, 1, 2, 3, 5, 8, 13)
JOINING = (Dispatch.DP_MP_COMPUTE, Dispatch.DP_MP_DISPATCH_FIRST)


@cache
def topologies() -> list[Topology]:
    """Every shape up to 3 on each axis, each in Megatron's rank order and in one random order."""
    shapes = product((1, 2, 3), repeat=4)
    plain = [Topology.from_sizes(dp * tp * pp * cp, tp=tp, pp=pp, cp=cp) for dp, tp, pp, cp in shapes]
    return [*plain, *(next(bijections(topology, 1, seed=seed)) for seed, topology in enumerate(plain))]


def owned(rows: int, dp_size: int, dp_rank: int) -> list[int]:
    """The rows of one DP rank, dealt out one at a time: the i-th larger part first, worked out row by row."""
    sizes = [0] * dp_size
    for row in range(rows):
        sizes[row % dp_size] += 1
    start = sum(sizes[:dp_rank])
    return list(range(start, start + sizes[dp_rank]))


def outputs_of(parts: list[Any]) -> list[object]:
    """What workers return that return their first argument."""
    return [None if part is None else part[0][0] for part in parts]


@st.composite
def shuffled(draw: st.DrawFn) -> Topology:
    """A topology of any shape up to 4 on each axis, with its ranks in any order."""
    dp, tp, pp, cp = (draw(st.integers(1, 4)) for _ in range(4))
    seed = draw(st.integers(0, 2**32))
    return next(bijections(Topology.from_sizes(dp * tp * pp * cp, tp=tp, pp=pp, cp=cp), 1, seed=seed))


def test_every_row_reaches_exactly_the_ranks_of_its_dp_rank_in_order() -> None:
    for topology, rows in product(topologies(), ROWS):
        parts = split(Dispatch.DP_MP_COMPUTE, topology, list(range(rows)), x=tuple(range(rows)))
        for info, part in zip(topology, parts, strict=True):
            mine = owned(rows, topology.dp_size, info.dp_rank)
            assert part == ((mine,), {"x": tuple(mine)})


def test_ranks_with_equal_dp_rank_get_the_same_objects() -> None:
    for topology in topologies():
        parts = split(Dispatch.DP_MP_COMPUTE, topology, list(range(5)))
        distinct = {id(part): info.dp_rank for info, part in zip(topology, parts, strict=True)}
        assert len(distinct) == topology.dp_size
        assert sorted(distinct.values()) == list(range(topology.dp_size))


@pytest.mark.parametrize("mode", JOINING, ids=repr)
def test_collecting_what_was_split_gives_the_input_for_every_rank_order(mode: Dispatch) -> None:
    for topology, rows in product(topologies(), ROWS):
        numbers = list(range(rows))
        outputs = outputs_of(split(Dispatch.DP_MP_COMPUTE, topology, numbers))
        assert collect(mode, topology, outputs) == numbers
        answering = {rank: outputs[rank] for rank in topology.collecting_ranks}
        assert collect(mode, topology, answering) == numbers


def test_what_ranks_return_that_do_not_answer_is_ignored() -> None:
    for topology in topologies():
        outputs = outputs_of(split(Dispatch.DP_MP_COMPUTE, topology, list(range(7))))
        for rank in range(topology.world_size):
            if rank not in topology.collecting_ranks:
                outputs[rank] = "nobody asked" if rank % 2 else None
        assert collect(Dispatch.DP_MP_COMPUTE, topology, outputs) == list(range(7))


def test_dispatch_first_gives_rows_to_the_first_ranks_and_no_rows_to_their_peers() -> None:
    for topology, mode in product(
        topologies(), (Dispatch.DP_MP_DISPATCH_FIRST, Dispatch.DP_MP_DISPATCH_FIRST_COLLECT_ALL)
    ):
        parts = split(mode, topology, list(range(5)), flag=True)
        for info, part in zip(topology, parts, strict=True):
            first = (info.tp_rank, info.pp_rank, info.cp_rank) == (0, 0, 0)
            assert part == ((owned(5, topology.dp_size, info.dp_rank) if first else [],), {"flag": True})


def test_modes_that_collect_all_return_the_output_of_every_rank_in_rank_order() -> None:
    for topology in topologies():
        outputs: list[object] = [f"from {rank}" for rank in range(topology.world_size)]
        for mode in (Dispatch.ONE_TO_ALL, Dispatch.ALL_TO_ALL, Dispatch.DP_MP_DISPATCH_FIRST_COLLECT_ALL):
            assert collect(mode, topology, outputs) == outputs
        assert collect(Dispatch.ONE_TO_ALL_ONE, topology, outputs) == "from 0"


def test_one_to_all_sends_the_same_object_to_every_rank() -> None:
    value = ["the", "same"]
    for topology in topologies():
        for mode in (Dispatch.ONE_TO_ALL, Dispatch.ONE_TO_ALL_ONE):
            parts = split(mode, topology, value, config={"rows": [1, 2]})
            assert len(parts) == topology.world_size
            assert all(part is parts[0] and part is not None and part[0][0] is value for part in parts)
            assert parts[0] == ((value,), {"config": {"rows": [1, 2]}})


def test_all_to_all_sends_item_i_to_rank_i() -> None:
    for topology in topologies():
        world = topology.world_size
        parts = split(Dispatch.ALL_TO_ALL, topology, list(range(world)), Broadcast("b"), k=tuple("x" * world))
        assert parts == [((rank, "b"), {"k": "x"}) for rank in range(world)]


@pytest.mark.parametrize(
    "mode",
    [
        Dispatch.DP_MP_COMPUTE,
        Dispatch.DP_MP_COMPUTE.with_options(pad=True),
        Dispatch.DP_MP_COMPUTE.with_options(empty="skip"),
        Dispatch.over("dp", "cp"),
        Dispatch.over("cp", "dp").with_options(pad=True),
        Dispatch.over("tp"),
        Dispatch.over("pp", "tp"),
        Dispatch.over("dp", "tp", "pp", "cp").with_options(empty="skip"),
        Dispatch.balanced(lambda numbers: [7 - n % 7 for n in numbers]),
        Dispatch.balanced(lambda numbers: [n % 5 for n in numbers], equal_counts=False).with_options(
            empty="skip"
        ),
    ],
    ids=repr,
)
def test_every_mode_that_splits_rows_gives_back_what_it_was_given(mode: Dispatch) -> None:
    check_mode(mode, topologies=topologies(), rows=ROWS)


@pytest.mark.parametrize("axes", [(), ("dp",), ("dp", "cp"), ("tp",)])
def test_direct_gives_back_what_it_was_given(axes: tuple[str, ...]) -> None:
    def wrap(numbers: list[int], topology: Topology) -> object:
        parts = topology.layout(*axes).num_parts if axes else topology.world_size
        return Direct(numbers, to=[(7 * n + n // 3) % parts for n in numbers])

    check_mode(Dispatch.direct(*axes), topologies=topologies(), rows=ROWS, wrap=wrap)
    check_mode(
        Dispatch.direct(*axes).with_options(empty="send"), topologies=topologies(), rows=ROWS, wrap=wrap
    )


@settings(deadline=None, max_examples=150)
@given(topology=shuffled(), rows=st.integers(0, 200), data=st.data())
def test_collect_inverts_split_for_any_rows_and_any_rank_order(
    topology: Topology, rows: int, data: st.DataObject
) -> None:
    numbers = list(range(rows))
    for mode in JOINING:
        outputs = outputs_of(split(Dispatch.DP_MP_COMPUTE, topology, numbers))
        assert collect(mode, topology, outputs) == numbers

    to = data.draw(st.lists(st.integers(0, topology.world_size - 1), min_size=rows, max_size=rows))
    costs = data.draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows))
    pad = Dispatch.DP_MP_COMPUTE.with_options(pad=True)
    calls: list[tuple[Dispatch, object, dict[str, object]]] = [
        (Dispatch.DIRECT, Direct(numbers, to=to), {}),
        (Dispatch.balanced("costs"), numbers, {"costs": costs}),
        (pad, numbers, {}),
    ]
    for mode, value, named in calls:
        call = plan_call(mode, topology, (value,), named)
        assert call.collect(outputs_of(list(call.parts))) == numbers


@settings(deadline=None, max_examples=150)
@given(topology=shuffled(), rows=st.integers(0, 200))
def test_part_sizes_differ_by_at_most_one_larger_first_for_every_kind_alike(
    topology: Topology, rows: int
) -> None:
    text = "".join(chr(65 + row % 26) for row in range(rows))
    numbers = list(range(rows))
    parts = split(
        Dispatch.DP_MP_COMPUTE,
        topology,
        numbers,
        tuple(numbers),
        Split(text),
        nested={"ids": numbers, "n": 3},
    )
    sizes: dict[int, int] = {}
    for info, part in zip(topology, parts, strict=True):
        assert part is not None
        (ids, pair, letters), named = part
        mine = owned(rows, topology.dp_size, info.dp_rank)
        assert ids == mine
        assert pair == tuple(mine)
        assert letters == "".join(text[row] for row in mine)
        assert named == {"nested": {"ids": mine, "n": 3}}
        sizes[info.dp_rank] = len(ids)
    in_order = [sizes[dp] for dp in range(topology.dp_size)]
    assert in_order == sorted(in_order, reverse=True)
    assert max(in_order) - min(in_order) <= 1
    assert sum(in_order) == rows


@settings(deadline=None, max_examples=100)
@given(topology=shuffled(), rows=st.integers(0, 200))
def test_padding_fills_every_part_and_is_taken_off_exactly(topology: Topology, rows: int) -> None:
    call = plan_call(Dispatch.DP_MP_COMPUTE.with_options(pad=True), topology, (list(range(rows)),))
    sizes = {len(part[0][0]) for part in call.parts if part is not None}
    assert sizes == {-(-rows // topology.dp_size)}
    doubled = {rank: [2 * n for n in call.parts[rank][0][0]] for rank in call.collecting_ranks}  # type: ignore[index]  # every rank is called
    assert call.collect(doubled) == [2 * n for n in range(rows)]


@settings(deadline=None, max_examples=100)
@given(topology=shuffled(), missing=st.integers(0, 10**6))
def test_a_missing_answering_rank_is_an_error(topology: Topology, missing: int) -> None:
    lost = topology.collecting_ranks[missing % topology.dp_size]
    outputs: dict[int, object] = {rank: [rank] for rank in topology.collecting_ranks if rank != lost}
    with pytest.raises(CollectError, match=rf"no output from answering rank \[{lost}\]"):
        collect(Dispatch.DP_MP_COMPUTE, topology, outputs)


@settings(deadline=None, max_examples=100)
@given(topology=shuffled(), rows=st.integers(0, 50))
def test_results_keep_their_type_whatever_the_dp_size(topology: Topology, rows: int) -> None:
    numbers = list(range(rows))
    for value in (numbers, tuple(numbers)):
        outputs = outputs_of(split(Dispatch.DP_MP_COMPUTE, topology, value))
        found = collect(Dispatch.DP_MP_COMPUTE, topology, outputs)
        assert found == value
        assert type(found) is type(value)
    scalars: list[object] = [1.5] * topology.world_size
    assert collect(Dispatch.DP_MP_COMPUTE, topology, scalars) == [1.5] * topology.dp_size


def test_two_ranks_that_would_answer_for_one_dp_rank_are_refused() -> None:
    ranks = list(Topology.data_parallel(2))
    with pytest.raises(TopologyError, match="dp rank 0 needs exactly one collecting rank"):
        Topology([ranks[0], ranks[1].replace(dp_rank=0)])


def test_rank_zero_alone_receives_everything_for_every_mode() -> None:
    from roll_dispatch import Execute, Route

    topology = Topology.from_sizes(8, tp=2, pp=2)
    for mode, value, expected in (
        (Dispatch.ONE_TO_ALL, [1, 2, 3], [[1, 2, 3]]),
        (Dispatch.ONE_TO_ALL_ONE, [1, 2, 3], [1, 2, 3]),
        (Dispatch.ALL_TO_ALL, ["only"], ["only"]),
        (Dispatch.DP_MP_COMPUTE, [1, 2, 3], [1, 2, 3]),
        (Dispatch.DP_MP_COMPUTE.with_options(pad=True, empty="skip"), [1, 2, 3], [1, 2, 3]),
        (Dispatch.DP_MP_DISPATCH_FIRST, [1, 2, 3], [1, 2, 3]),
        (Dispatch.DP_MP_DISPATCH_FIRST_COLLECT_ALL, [1, 2, 3], [[1, 2, 3]]),
        (Dispatch.over("dp", "cp"), [1, 2, 3], [1, 2, 3]),
        (Dispatch.balanced(lambda rows: rows), [1, 2, 3], [1, 2, 3]),
        (Dispatch.DIRECT, Direct([1, 2, 3], to=[0, 0, 0]), [1, 2, 3]),
    ):
        call = plan_call(Route(dispatch_mode=mode, execute_mode=Execute.RANK_ZERO), topology, (value,))
        assert call.parts[1:] == [None] * 7
        assert call.collecting_ranks == (0,)
        assert call.parts[0] is not None
        assert call.collect({0: call.parts[0][0][0]}) == expected
