from itertools import product

import pytest

from roll_dispatch import Topology, TopologyError
from roll_dispatch.layout import ranks_apart
from roll_dispatch.testing import bijections

SHAPES = list(product((1, 2, 3), repeat=4))
AXES = ("dp", "tp", "pp", "cp")


@pytest.mark.parametrize(
    "axes", [("dp",), ("cp",), ("tp",), ("pp",), ("dp", "cp"), ("cp", "dp"), ("tp", "pp", "dp")]
)
def test_parts_count_through_the_axes_and_one_rank_answers_for_each(axes: tuple[str, ...]) -> None:
    for dp, tp, pp, cp in SHAPES:
        plain = Topology.from_sizes(dp * tp * pp * cp, tp=tp, pp=pp, cp=cp)
        for topology in (plain, *bijections(plain, 2)):
            layout = topology.layout(*axes)
            sizes = [topology.sizes[axis] for axis in axes]
            expected = {place: part for part, place in enumerate(product(*map(range, sizes)))}
            for info in topology:
                assert layout.part_of[info.rank] == expected[tuple(getattr(info, f"{a}_rank") for a in axes)]
            assert layout.num_parts == len(expected)
            for part, rank in enumerate(layout.collecting):
                info = topology[rank]
                assert layout.part_of[rank] == part
                rest = {a: getattr(info, f"{a}_rank") for a in AXES if a not in axes}
                assert rest == {a: pp - 1 if a == "pp" else 0 for a in rest}
            assert sorted(layout.part_of[rank] for rank in layout.first) == list(range(layout.num_parts))
            for rank in layout.first:
                assert all(getattr(topology[rank], f"{a}_rank") == 0 for a in AXES if a not in axes)


def test_rows_over_experts_are_answered_by_the_first_shard_of_each() -> None:
    topology = Topology.from_sizes(16, tp=2, pp=2, ep=2)

    layout = topology.layout("ep")
    assert layout.num_parts == 2
    assert [topology[rank].ep_rank for rank in layout.collecting] == [0, 1]
    assert [(topology[r].dp_rank, topology[r].tp_rank, topology[r].pp_rank) for r in layout.collecting] == [
        (0, 0, 1),
        (1, 0, 1),
    ]
    assert layout.part_of == tuple(info.ep_rank for info in topology)


def test_ranks_apart_are_each_a_part_that_they_answer_for() -> None:
    layout = ranks_apart(Topology.from_sizes(4, tp=2).ranks)

    assert layout.part_of == layout.collecting == (0, 1, 2, 3)
    assert layout.first == {0, 1, 2, 3}
    assert layout.num_parts == 4
    assert layout.name == "world size"


def test_a_layout_is_named_by_its_axes() -> None:
    assert Topology.from_sizes(4).layout("dp", "cp").name == "dp x cp size"


def test_a_layout_is_worked_out_once() -> None:
    topology = Topology.from_sizes(4)

    assert topology.layout("dp") is topology.layout("dp")


@pytest.mark.parametrize("axes", [(), ("dp", "dp"), ("xp",)])
def test_axes_that_are_none_unknown_or_repeated_are_refused(axes: tuple[str, ...]) -> None:
    with pytest.raises(TopologyError) as caught:
        Topology.from_sizes(4).layout(*axes)

    assert (
        str(caught.value)
        == f"rows lie over one or more different axes of dp, tp, pp, cp, ep, not over {axes}"
    )


@pytest.mark.parametrize("axes", [("ep", "dp"), ("cp", "ep"), ("dp", "tp", "pp", "cp", "ep")])
def test_experts_together_with_what_they_lie_over_are_refused(axes: tuple[str, ...]) -> None:
    with pytest.raises(
        TopologyError, match="ep lies over dp x cp, so rows lie over ep or over dp and cp, not over"
    ):
        Topology.from_sizes(4).layout(*axes)
