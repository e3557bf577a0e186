import pickle
from itertools import permutations, product

import pytest

from roll_dispatch import RankInfo, Topology, TopologyError
from roll_dispatch.testing import all_topologies, bijections

SHAPES = list(product((1, 2, 3), repeat=4))  # dp, tp, pp, cp


def infos(dp: int, tp: int, pp: int, cp: int) -> list[RankInfo]:
    """The coordinates of every place, numbered in an order of its own, worked out without Topology."""
    places = list(product(range(cp), range(dp), range(pp), range(tp)))
    return [
        RankInfo(
            rank=rank,
            world_size=dp * tp * pp * cp,
            dp_rank=d,
            dp_size=dp,
            tp_rank=t,
            tp_size=tp,
            pp_rank=p,
            pp_size=pp,
            cp_rank=c,
            cp_size=cp,
        )
        for rank, (c, d, p, t) in enumerate(places)
    ]


@pytest.mark.parametrize(("dp", "tp", "pp", "cp"), SHAPES)
def test_from_sizes_places_every_rank_once_and_names_one_collecting_rank_per_dp_rank(
    dp: int, tp: int, pp: int, cp: int
) -> None:
    topology = Topology.from_sizes(dp * tp * pp * cp, tp=tp, pp=pp, cp=cp)

    places = {(i.dp_rank, i.tp_rank, i.pp_rank, i.cp_rank) for i in topology}
    assert places == set(product(range(dp), range(tp), range(pp), range(cp)))
    assert [i.rank for i in topology] == list(range(dp * tp * pp * cp))
    assert (topology.dp_size, topology.tp_size, topology.pp_size, topology.cp_size) == (dp, tp, pp, cp)
    assert topology.sizes == {"dp": dp, "tp": tp, "pp": pp, "cp": cp, "ep": 1}
    answering = [topology[rank] for rank in topology.collecting_ranks]
    assert [i.dp_rank for i in answering] == list(range(dp))
    assert all((i.tp_rank, i.pp_rank, i.cp_rank) == (0, pp - 1, 0) for i in answering)
    assert {topology.rank_at(dp=d, tp=t, pp=p, cp=c) for d, t, p, c in places} == set(
        range(dp * tp * pp * cp)
    )


@pytest.mark.parametrize("order", ["-".join(axes) for axes in permutations(("dp", "tp", "pp", "cp"))])
def test_from_sizes_counts_through_the_axes_of_the_order_the_first_one_fastest(order: str) -> None:
    topology = Topology.from_sizes(2 * 3 * 4 * 5, tp=3, pp=4, cp=5, order=order)

    sizes = {"dp": 2, "tp": 3, "pp": 4, "cp": 5}
    for info in topology:
        stride, rank = 1, 0
        for axis in order.split("-"):
            rank += stride * getattr(info, f"{axis}_rank")
            stride *= sizes[axis]
        assert rank == info.rank


def test_from_sizes_gives_the_rank_order_of_megatron() -> None:
    # Megatron's groups for 16 ranks with tp 2, pp 2, cp 2, in its order tp-cp-dp-pp, worked out by hand.
    topology = Topology.from_sizes(16, tp=2, pp=2, cp=2)

    def groups(axis: str) -> list[list[int]]:
        rest = [a for a in ("dp", "tp", "pp", "cp") if a != axis]
        found: dict[tuple[int, ...], list[int]] = {}
        for info in topology:
            found.setdefault(tuple(getattr(info, f"{a}_rank") for a in rest), []).append(info.rank)
        return sorted(found.values())

    assert groups("tp") == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13], [14, 15]]
    assert groups("cp") == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]
    assert groups("dp") == [[0, 4], [1, 5], [2, 6], [3, 7], [8, 12], [9, 13], [10, 14], [11, 15]]
    assert groups("pp") == [[0, 8], [1, 9], [2, 10], [3, 11], [4, 12], [5, 13], [6, 14], [7, 15]]


@pytest.mark.parametrize("order", ["tp-cp-dp-pp", "tp-cp-ep-dp-pp"])
def test_expert_ranks_count_fastest_over_dp_and_cp_by_default(order: str) -> None:
    topology = Topology.from_sizes(8, tp=2, ep=2, order=order)

    assert [i.ep_rank for i in topology] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert topology.ep_size == 2


def test_expert_ranks_count_slowest_when_the_order_names_them_after_dp() -> None:
    topology = Topology.from_sizes(8, tp=2, ep=2, order="tp-cp-dp-ep-pp")

    assert [i.ep_rank for i in topology] == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(("dp", "cp"), [(1, 1), (2, 1), (1, 4), (4, 2), (3, 2)])
def test_every_expert_size_that_divides_dp_times_cp_keeps_the_laws(dp: int, cp: int) -> None:
    shards = dp * cp
    for ep in (size for size in range(1, shards + 1) if shards % size == 0):
        topology = Topology.from_sizes(shards * 2, tp=2, cp=cp, ep=ep)

        for tp in (0, 1):
            ranks = [i.ep_rank for i in topology if i.tp_rank == tp]
            assert sorted(ranks) == sorted(list(range(ep)) * (shards // ep))


def test_a_user_made_list_in_any_order_is_put_in_rank_order() -> None:
    for dp, tp, pp, cp in SHAPES:
        made = infos(dp, tp, pp, cp)
        assert list(Topology(reversed(made))) == made


def test_random_bijections_keep_the_laws_and_answer_in_dp_order() -> None:
    for topology in bijections(Topology.from_sizes(24, tp=2, pp=3, cp=2), 30, seed=1):
        assert [topology[rank].dp_rank for rank in topology.collecting_ranks] == [0, 1]
        assert all(topology[rank].is_pipeline_last_stage for rank in topology.collecting_ranks)
        assert topology.rank_at(dp=1, tp=1, pp=2, cp=1) in range(24)


def test_bijections_are_the_same_for_the_same_seed_and_differ_between_seeds() -> None:
    topology = Topology.from_sizes(12, tp=2)

    assert list(bijections(topology, 3, seed=4)) == list(bijections(topology, 3, seed=4))
    assert list(bijections(topology, 3, seed=4)) != list(bijections(topology, 3, seed=5))


def test_all_topologies_holds_every_shape_once() -> None:
    found = [tuple(t.sizes.values()) for t in all_topologies(4)]

    assert (
        len(found) == len(set(found)) == 1 + 4 + 4 + 10
    )  # ordered factorisations of 1, 2, 3, 4 in four factors
    assert all(t.world_size <= 4 for t in all_topologies(4))


def test_a_topology_is_a_value() -> None:
    one, same, other = Topology.from_sizes(4, tp=2), Topology.from_sizes(4, tp=2), Topology.from_sizes(4)

    assert one == same
    assert hash(one) == hash(same)
    assert hash(one) != hash(other)
    assert one != other
    assert one != "a topology"
    assert pickle.loads(pickle.dumps(one)) == one
    assert len(one) == one.world_size == 4
    assert one[3].rank == 3


def test_a_topology_prints_as_a_table_with_a_star_at_the_answering_ranks() -> None:
    assert str(Topology.from_sizes(4, tp=2)) == (
        "<Topology of 4 rank(s): dp=2, tp=2>\n rank   dp   tp   pp   cp  answers\n    0    0    0    0    "
        "0  *\n    1    0    1    0    0\n    2    1    0    0    0  *\n    3    1    1    0    0"
    )


def test_a_topology_with_experts_prints_their_column() -> None:
    lines = str(Topology.from_sizes(4, ep=4)).splitlines()

    assert lines[0] == "<Topology of 4 rank(s): dp=4, ep=4>"
    assert lines[1] == " rank   dp   tp   pp   cp   ep  answers"
    assert lines[4] == "    2    2    0    0    0    2  *"


def test_two_experts_are_enough_to_print_their_column() -> None:
    assert " ep " in str(Topology.from_sizes(2, ep=2))
    assert " ep " not in str(Topology.from_sizes(2))


def test_a_topology_of_one_rank_prints_no_sizes() -> None:
    assert repr(Topology.data_parallel(1)) == "<Topology of 1 rank(s)>"


def test_data_parallel_makes_every_worker_a_dp_rank() -> None:
    topology = Topology.data_parallel(3)

    assert list(topology) == [RankInfo.data_parallel(rank=rank, world_size=3) for rank in range(3)]
    assert topology.collecting_ranks == (0, 1, 2)


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        (
            {"world_size": 6, "tp": 4},
            "world_size 6 is not a multiple of tp 4 x pp 1 x cp 1 = 4; use a multiple, such as 8",
        ),
        ({"world_size": 0}, "sizes are 1 or more, not {'world_size': 0}"),
        ({"world_size": 4, "pp": 0, "cp": -1}, "sizes are 1 or more, not {'pp': 0, 'cp': -1}"),
        ({"world_size": 4, "ep": 0}, "sizes are 1 or more, not {'ep': 0}"),
        ({"world_size": 8, "tp": 2, "ep": 3}, "ep 3 does not divide dp 4 x cp 1 = 4; choose an ep that does"),
        (
            {"world_size": 4, "order": "tp-dp-pp"},
            "order 'tp-dp-pp' does not name each of dp, tp, pp, cp once",
        ),
        ({"world_size": 4, "order": "tp-cp-dp-pp-dp"}, "does not name each of"),
        ({"world_size": 4, "order": "tp-cp-ep-dp-pp-ep"}, "does not name each of"),
    ],
)
def test_from_sizes_refuses_sizes_that_do_not_fit_and_says_what_would(
    sizes: dict[str, int], sentence: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        Topology.from_sizes(**sizes)  # type: ignore[arg-type]  # order is a string

    assert sentence in str(caught.value)


def test_the_way_out_of_wrong_sizes_and_orders_is_told_in_full() -> None:
    with pytest.raises(TopologyError) as caught:
        Topology.from_sizes(6, tp=4)
    assert str(caught.value) == (
        "world_size 6 is not a multiple of tp 4 x pp 1 x cp 1 = 4; use a multiple, such as 8"
    )
    with pytest.raises(TopologyError) as caught:
        Topology.from_sizes(6, order="dp")
    assert str(caught.value) == (
        "order 'dp' does not name each of dp, tp, pp, cp once; write them from fastest to slowest, joined "
        "by '-', such as 'tp-cp-dp-pp'"
    )
    with pytest.raises(TopologyError) as caught:
        Topology.from_sizes(0)
    assert str(caught.value) == (
        "sizes are 1 or more, not {'world_size': 0}; leave out an axis that is not parallel"
    )


def test_expert_ranks_count_through_dp_and_cp_in_the_order_of_the_axes() -> None:
    plain = Topology.from_sizes(6, cp=2, ep=3)  # shard = cp + 2 dp
    turned = Topology.from_sizes(6, cp=2, ep=3, order="tp-dp-cp-pp")  # shard = dp + 3 cp

    assert [(i.cp_rank, i.dp_rank, i.ep_rank) for i in plain] == [
        (0, 0, 0),
        (1, 0, 1),
        (0, 1, 2),
        (1, 1, 0),
        (0, 2, 1),
        (1, 2, 2),
    ]
    assert [i.ep_rank for i in turned] == [0, 1, 2, 0, 1, 2]
    slow = Topology.from_sizes(8, cp=2, ep=2, order="cp-dp-ep-tp-pp")
    assert [i.ep_rank for i in slow] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_rank_at_takes_axes_that_are_not_named_as_zero() -> None:
    topology = Topology.from_sizes(16, tp=2, pp=2, cp=2)

    assert topology.rank_at() == 0
    assert [topology.rank_at(**{axis: 1}) for axis in ("tp", "cp", "dp", "pp")] == [1, 2, 4, 8]


def test_rank_at_refuses_a_place_outside_of_the_axes() -> None:
    with pytest.raises(TopologyError, match=r"no rank stands at dp=2, tp=0, pp=0, cp=0 of sizes \{'dp': 2"):
        Topology.from_sizes(2).rank_at(dp=2)


def broken(ranks: list[RankInfo]) -> list[str]:
    """The sentences with which a list of ranks is refused."""
    with pytest.raises(TopologyError) as caught:
        Topology(ranks)
    return [line[4:] for line in str(caught.value).splitlines() if line.startswith("  - ")]


def test_no_ranks_are_refused() -> None:
    assert broken([]) == ["there are no ranks; a topology has at least one"]


def test_ranks_that_repeat_miss_or_lie_outside_are_named() -> None:
    ranks = [RankInfo.data_parallel(rank=rank, world_size=4) for rank in range(4)]
    ranks[2] = ranks[2].replace(rank=7)
    ranks[3] = ranks[3].replace(rank=0)

    assert broken(ranks) == [
        "rank 0 occurs more than once",
        "rank 2, 3 is missing of 0 to 3",
        "rank 7 is outside of 0 to 3",
    ]


def test_a_negative_rank_is_outside() -> None:
    ranks = [RankInfo.data_parallel(rank=0, world_size=2), RankInfo.data_parallel(rank=1, world_size=2)]

    assert "rank -1 is outside of 0 to 1" in broken([ranks[0], ranks[1].replace(rank=-1)])


def test_the_first_rank_beyond_the_last_one_is_outside() -> None:
    ranks = [RankInfo.data_parallel(rank=rank, world_size=2) for rank in range(2)]

    assert "rank 2 is outside of 0 to 1" in broken([ranks[0], ranks[1].replace(rank=2)])


def test_sizes_on_which_ranks_disagree_are_named_with_who_says_what() -> None:
    ranks = [RankInfo.data_parallel(rank=rank, world_size=4) for rank in range(4)]

    assert "dp_size is not the same on all ranks: 4 on rank 0, 2, 3; 9 on rank 1" in broken(
        [ranks[0], ranks[1].replace(dp_size=9), *ranks[2:]]
    )
    for axis in ("tp", "pp", "cp", "ep"):
        told = broken([*ranks[:3], ranks[3].replace(**{f"{axis}_size": 2})])
        assert f"{axis}_size is not the same on all ranks: 1 on rank 0, 1, 2; 2 on rank 3" in told


def test_a_world_size_that_is_not_the_number_of_ranks_is_named() -> None:
    told = broken([RankInfo.data_parallel(rank=rank, world_size=3).replace(dp_size=2) for rank in range(2)])

    assert told == ["world_size is 3, but there are 2 ranks"]


def test_sizes_that_do_not_multiply_to_the_number_of_ranks_are_spelled_out() -> None:
    ranks = [RankInfo.data_parallel(rank=rank, world_size=2).replace(tp_size=2) for rank in range(2)]

    assert broken(ranks) == ["dp 2 x tp 2 x pp 1 x cp 1 = 4, but there are 2 ranks"]


def test_coordinates_outside_of_their_axis_are_named() -> None:
    ranks = infos(2, 2, 1, 1)

    told = broken([*ranks[:3], ranks[3].replace(tp_rank=2)])
    assert told == ["rank 3 has tp_rank 2, but tp_size is 2"]
    assert "rank 0 has cp_rank -1, but cp_size is 1" in broken([ranks[0].replace(cp_rank=-1), *ranks[1:]])


def test_two_ranks_at_one_place_are_named_and_so_is_the_double_collecting_rank() -> None:
    ranks = infos(2, 1, 1, 1)

    assert broken([ranks[0], ranks[1].replace(dp_rank=0)]) == [
        "ranks 0, 1 all stand at dp=0, tp=0, pp=0, cp=0",
        "dp rank 0 needs exactly one collecting rank (tp 0, cp 0, last stage) and has ranks 0, 1",
        "dp rank 1 needs exactly one collecting rank (tp 0, cp 0, last stage) and has none",
    ]


def test_a_dp_rank_without_a_last_stage_has_no_collecting_rank() -> None:
    ranks = infos(1, 1, 2, 1)

    assert broken([ranks[0], ranks[1].replace(pp_rank=0)]) == [
        "ranks 0, 1 all stand at dp=0, tp=0, pp=0, cp=0",
        "dp rank 0 needs exactly one collecting rank (tp 0, cp 0, last stage) and has none",
    ]


def test_expert_ranks_that_occur_unequally_often_are_counted() -> None:
    ranks = [info.replace(ep_size=2, ep_rank=info.dp_rank % 2) for info in infos(4, 1, 1, 1)]

    assert broken([*ranks[:3], ranks[3].replace(ep_rank=0)]) == [
        "at tp=0, pp=0 the ep ranks do not occur equally often with ep_size 2: 0 x3, 1 x1"
    ]


def test_an_expert_rank_that_nobody_has_is_found() -> None:
    ranks = [info.replace(ep_size=2, ep_rank=0) for info in infos(2, 1, 1, 1)]

    assert broken(ranks) == ["at tp=0, pp=0 the ep ranks do not occur equally often with ep_size 2: 0 x2"]


def test_an_expert_size_that_does_not_divide_is_named() -> None:
    assert "ep 3 does not divide dp 4 x cp 1 = 4" in broken([i.replace(ep_size=3) for i in infos(4, 1, 1, 1)])
    assert "ep 0 does not divide dp 2 x cp 1 = 2" in broken([i.replace(ep_size=0) for i in infos(2, 1, 1, 1)])


def test_every_violation_is_reported_at_once_with_the_way_out() -> None:
    with pytest.raises(TopologyError) as caught:
        Topology([RankInfo(rank=0, world_size=2), RankInfo(rank=0, world_size=3, ep_size=0)])

    message = str(caught.value)
    assert message.startswith("these 2 ranks are no topology:\n  - ")
    assert message.endswith("or build them with Topology.from_sizes.")
    assert message.count("\n  - ") == 8


def test_long_lists_of_ranks_are_shortened() -> None:
    ranks = [RankInfo.data_parallel(rank=rank, world_size=12).replace(rank=0) for rank in range(12)]

    assert "rank 1, 2, 3, 4, 5, 6, 7, 8 and 3 more is missing of 0 to 11" in broken(ranks)


def test_lists_of_nine_ranks_are_shortened_by_one() -> None:
    ranks = [RankInfo.data_parallel(rank=rank, world_size=10).replace(rank=0) for rank in range(10)]

    assert "rank 1, 2, 3, 4, 5, 6, 7, 8 and 1 more is missing of 0 to 9" in broken(ranks)


def test_lists_of_eight_ranks_are_told_whole() -> None:
    ranks = [RankInfo.data_parallel(rank=rank, world_size=9).replace(rank=0) for rank in range(9)]

    assert "rank 1, 2, 3, 4, 5, 6, 7, 8 is missing of 0 to 8" in broken(ranks)
