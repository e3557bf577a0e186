import pickle
from collections.abc import Mapping
from typing import Any

import pytest

from roll_dispatch import (
    Direct,
    Dispatch,
    RegisterError,
    SplitError,
    Topology,
    TopologyError,
    collect,
    plan_call,
    register_dispatch,
    split,
)
from roll_dispatch.testing import all_topologies, check_mode

TWO = Topology.data_parallel(2)


def deal(topology: Topology, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Deal rows to DP ranks one by one.

    More is said here.
    """
    (rows,) = args
    return [((rows[rank.dp_rank :: rank.dp_size],), kwargs) for rank in topology]


def undeal(topology: Topology, outputs: Mapping[int, Any]) -> list[Any]:
    """Put dealt rows back."""
    hands = list(outputs.values())
    return [hands[row % len(hands)][row // len(hands)] for row in range(sum(map(len, hands)))]


def stack(topology: Topology, outputs: Mapping[int, Any]) -> list[Any]:
    """Put dealt hands after one another, which is wrong."""
    return [row for hand in outputs.values() for row in hand]


def answering(topology: Topology) -> tuple[int, ...]:
    return topology.collecting_ranks


def test_a_mode_of_your_own_splits_and_joins_as_it_says() -> None:
    mode = register_dispatch("ROUND_ROBIN", split=deal, collect=undeal, collecting=answering)

    assert split("ROUND_ROBIN", TWO, [0, 1, 2]) == [(([0, 2],), {}), (([1],), {})]
    assert collect(mode, TWO, [[0, 2], [1]]) == [0, 1, 2]
    assert mode.summary == "Deal rows to DP ranks one by one."
    assert Dispatch.named("ROUND_ROBIN") is mode
    assert "ROUND_ROBIN" in Dispatch.names()
    assert pickle.loads(pickle.dumps(mode)) is mode
    check_mode(mode, topologies=all_topologies(6))


def test_check_mode_finds_a_mode_that_loses_the_order() -> None:
    wrong = register_dispatch(
        "ROUND_ROBIN_JOINED",
        split=deal,
        collect=stack,
        collecting=answering,
    )

    with pytest.raises(
        AssertionError, match=r"the rows sent come back as \[0, 2, 1\]: ROUND_ROBIN_JOINED with 3 rows"
    ):
        check_mode(wrong, topologies=[TWO])


def test_check_mode_finds_a_mode_that_changes_its_argument() -> None:
    def greedy(topology: Topology, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        parts = [((list(args[0]),), kwargs)]
        args[0].clear()
        return parts

    mode = register_dispatch("GREEDY", split=greedy, collect=lambda topology, outputs: outputs[0])
    with pytest.raises(AssertionError):
        check_mode(mode, topologies=[Topology.data_parallel(1)])


def test_registering_the_same_functions_again_is_no_clash() -> None:
    first = register_dispatch("AGAIN", split=deal, collect=undeal)
    assert register_dispatch("AGAIN", split=deal, collect=undeal) == first


@pytest.mark.parametrize("name", ["DP_MP_COMPUTE", "ONE_TO_ALL", "TAKEN"])
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    register_dispatch("TAKEN", split=deal, collect=lambda topology, outputs: None, summary="Mine.")
    with pytest.raises(RegisterError, match=f"a mode named {name} exists already"):
        register_dispatch(name, split=deal, collect=undeal)


def test_a_name_that_is_no_identifier_is_refused() -> None:
    with pytest.raises(
        RegisterError, match="a mode is named by an identifier such as 'ROUND_ROBIN', not 'round robin'"
    ):
        register_dispatch("round robin", split=deal, collect=undeal)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        RegisterError, match="no mode is named 'DP_COMPUTE'; known are ONE_TO_ALL, ONE_TO_ALL_ONE"
    ):
        split("DP_COMPUTE", TWO, [])


def test_a_mode_may_leave_ranks_out() -> None:
    odd = register_dispatch(
        "ODD_ONES",
        split=lambda topology, args, kwargs: [(args, kwargs) if r.rank % 2 else None for r in topology],
        collect=lambda topology, outputs: dict(outputs),
    )
    call = plan_call(odd, Topology.data_parallel(4), ("x",))
    assert call.parts == [None, (("x",), {}), None, (("x",), {})]
    assert call.collecting_ranks == (1, 3)
    assert call.rows is None
    assert call.collect({1: "a", 3: "b"}) == {1: "a", 3: "b"}


def test_a_mode_that_gives_too_few_parts_is_refused() -> None:
    short = register_dispatch("SHORT", split=lambda topology, args, kwargs: [(args, kwargs)], collect=undeal)
    with pytest.raises(
        SplitError, match="SHORT: its split function gave 1 parts for 2 ranks; return one per rank"
    ):
        plan_call(short, TWO, ())


def test_a_mode_without_a_docstring_says_that_it_is_registered() -> None:
    mode = register_dispatch("SILENT", split=lambda topology, args, kwargs: [], collect=undeal)
    assert mode.summary == "The registered mode SILENT."


@pytest.mark.parametrize(
    "name", ["ONE_TO_ALL", "ALL_TO_ALL", "DP_MP_DISPATCH_FIRST_COLLECT_ALL", "ROUND_ROBIN"]
)
def test_options_are_refused_by_modes_that_have_no_such_policy(name: str) -> None:
    register_dispatch("ROUND_ROBIN", split=deal, collect=undeal, collecting=answering)
    with pytest.raises(
        RegisterError, match=f"{name} has no pad=, only modes that cut rows evenly and join them have"
    ):
        Dispatch.named(name).with_options(pad=True)


def test_options_that_are_not_given_change_nothing() -> None:
    assert Dispatch.ONE_TO_ALL.with_options() is Dispatch.ONE_TO_ALL
    assert Dispatch.DP_MP_COMPUTE.with_options(pad=False, empty="send") == Dispatch.DP_MP_COMPUTE


def test_regrouping_modes_have_no_padding() -> None:
    for mode in (Dispatch.DIRECT, Dispatch.balanced("c")):
        with pytest.raises(RegisterError, match="has no pad="):
            mode.with_options(pad=True)


def test_an_unknown_policy_for_empty_parts_is_refused() -> None:
    with pytest.raises(RegisterError, match="empty= is 'send' or 'skip', not 'drop'"):
        Dispatch.DP_MP_COMPUTE.with_options(empty="drop")  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(
    "mode",
    [
        *map(Dispatch.named, ("ONE_TO_ALL", "ONE_TO_ALL_ONE", "ALL_TO_ALL", "DP_MP_COMPUTE", "DIRECT")),
        *map(Dispatch.named, ("DP_MP_DISPATCH_FIRST", "DP_MP_DISPATCH_FIRST_COLLECT_ALL")),
    ],
    ids=repr,
)
def test_modes_of_this_package_are_the_same_object_after_pickling(mode: Dispatch) -> None:
    assert pickle.loads(pickle.dumps(mode)) is mode
    assert getattr(Dispatch, mode.name) is mode


@pytest.mark.parametrize(
    "mode",
    [
        Dispatch.over("dp", "cp"),
        Dispatch.direct("dp"),
        Dispatch.balanced("costs", equal_counts=False, method="greedy"),
        Dispatch.DP_MP_COMPUTE.with_options(pad=True, empty="skip"),
    ],
    ids=repr,
)
def test_made_modes_are_equal_after_pickling(mode: Dispatch) -> None:
    assert pickle.loads(pickle.dumps(mode)) == mode
    assert mode != Dispatch.DP_MP_COMPUTE


def test_modes_print_their_name() -> None:
    assert repr(Dispatch.DP_MP_COMPUTE) == "<Dispatch DP_MP_COMPUTE>"
    assert [m.name for m in (Dispatch.over("dp", "cp"), Dispatch.direct("dp"), Dispatch.balanced("n"))] == [
        "over(dp, cp)",
        "direct(dp)",
        "balanced(n)",
    ]


def test_over_names_the_axes_when_rows_do_not_agree_and_refuses_wrong_axes() -> None:
    with pytest.raises(
        SplitError, match=r"over\(dp, cp\) cuts all arguments at the same rows over dp x cp size 4"
    ):
        split(Dispatch.over("dp", "cp"), Topology.from_sizes(4, cp=2), [1], [1, 2])


def test_wrong_axes_are_refused_when_the_mode_is_made() -> None:
    for axes in ((), ("xp",), ("dp", "dp")):
        with pytest.raises(TopologyError, match="rows lie over one or more different axes"):
            Dispatch.over(*axes)
    for make in (Dispatch.over, Dispatch.direct):
        with pytest.raises(TopologyError, match="ep lies over dp x cp"):
            make("ep", "dp")


def test_over_two_axes_gives_sequence_shards() -> None:
    topology = Topology.from_sizes(8, cp=2, tp=2)
    parts = split(Dispatch.over("dp", "cp"), topology, list("abcd"))
    assert [
        (i.dp_rank, i.cp_rank, p[0][0]) for i, p in zip(topology, parts, strict=True) if p and i.tp_rank == 0
    ] == [
        (0, 0, ["a"]),
        (0, 1, ["b"]),
        (1, 0, ["c"]),
        (1, 1, ["d"]),
    ]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (([1, 2],), r"DIRECT: one Direct\(rows, to=\[...\]\) says where rows go, but no argument does"),
        ((Direct([1], to=[0]), Direct([2], to=[1])), r"but \['0', '1'\] differ in theirs"),
        ((Direct([1, 2], to=[0]),), "DIRECT: to= names 1 targets for 2 rows; name one per row"),
        ((Direct([1, 2], to=[0, 2]),), r"DIRECT: to= names \[2\], but world size is 2"),
        ((Direct([1, 2], to=[-1, 0]),), r"DIRECT: to= names \[-1\], but world size is 2"),
        ((Direct(5, to=[0]),), r"argument 0 is Direct\(...\) around a int, which has no rows"),
    ],
)
def test_direct_refuses_targets_that_do_not_fit(value: tuple[object, ...], sentence: str) -> None:
    with pytest.raises(SplitError, match=sentence):
        split(Dispatch.DIRECT, TWO, *value)


def test_direct_sends_the_other_arguments_along() -> None:
    parts = split(
        Dispatch.DIRECT, TWO, Direct("ab", to=[1, 0]), [10, 20], scale=3, same=Direct([1, 2], to=[1, 0])
    )
    assert parts == [(("b", [20]), {"scale": 3, "same": [2]}), (("a", [10]), {"scale": 3, "same": [1]})]


def test_direct_may_call_every_rank() -> None:
    send = Dispatch.DIRECT.with_options(empty="send")
    assert split(send, TWO, Direct([7], to=[1])) == [(([],), {}), (([7],), {})]


def test_direct_without_rows_calls_the_first_rank() -> None:
    assert split(Dispatch.DIRECT, TWO, Direct([], to=[])) == [(([],), {}), None]


def test_direct_over_dp_ranks_sends_rows_to_all_peers() -> None:
    topology = Topology.from_sizes(4, tp=2)
    assert split(Dispatch.direct("dp"), topology, Direct(["a", "b"], to=[1, 1])) == [
        None,
        None,
        ((["a", "b"],), {}),
        ((["a", "b"],), {}),
    ]
    with pytest.raises(SplitError, match=r"direct\(dp\): to= names \[3\], but dp size is 2"):
        split(Dispatch.direct("dp"), topology, Direct(["a"], to=[3]))


def test_balanced_divides_rows_by_the_cost_that_an_argument_holds() -> None:
    mode = Dispatch.balanced("tokens")
    call = plan_call(mode, TWO, (["big", "a", "b", "large"],), {"tokens": [9, 1, 1, 9]})
    assert call.parts == [((["big", "a"],), {"tokens": [9, 1]}), ((["b", "large"],), {"tokens": [1, 9]})]
    assert call.rows == [2, 2]
    assert call.collect([["BIG", "A"], ["B", "LARGE"]]) == ["BIG", "A", "B", "LARGE"]


def test_balanced_finds_positional_costs_by_the_name_of_their_parameter() -> None:
    from roll_dispatch import Broadcast, Route

    route = Route(dispatch_mode=Dispatch.balanced("tokens"), parameters=("rows", "tokens"))
    call = plan_call(route, TWO, (list("abcd"), Broadcast([1, 5, 5, 1])))
    assert [part[0] for part in call.parts if part] == [
        (["a", "b"], [1, 5, 5, 1]),
        (["c", "d"], [1, 5, 5, 1]),
    ]


def test_balanced_with_free_counts_lets_one_large_row_stand_alone() -> None:
    mode = Dispatch.balanced(lambda rows: rows, equal_counts=False)
    assert split(mode, TWO, [1, 1, 9, 1]) == [(([1, 1, 1],), {}), (([9],), {})]


@pytest.mark.parametrize(
    ("cost", "args", "sentence"),
    [
        ("tokens", ([1],), r"balanced\(tokens\): no argument 'tokens' holds the cost per row, only \[\]"),
        (
            lambda rows: [1],
            ([1, 2],),
            "1 costs are given but the arguments have 2 rows; give one cost per row",
        ),
        (lambda rows: [1], (5,), "1 costs are given but no argument has rows; give one cost per row"),
    ],
)
def test_balanced_refuses_costs_that_are_not_one_per_row(
    cost: Any, args: tuple[object, ...], sentence: str
) -> None:
    with pytest.raises(SplitError, match=sentence):
        split(Dispatch.balanced(cost), TWO, *args)
