import pickle

import pytest

from roll_dispatch import RankInfo, TopologyError


def test_rank_info_is_a_frozen_value_that_pickles() -> None:
    info = RankInfo(rank=1, world_size=4, pp_rank=1, pp_size=2)

    assert info.is_pipeline_last_stage
    assert info.is_collecting
    assert pickle.loads(pickle.dumps(info)) == info
    assert hash(info) == hash(info.replace())
    assert info != info.replace(rank=2)
    assert info.replace(rank=2).rank == 2
    with pytest.raises(AttributeError, match=r"RankInfo is frozen; make another one with .replace\(rank="):
        info.rank = 2  # type: ignore[misc]  # the checker sees it too
    with pytest.raises(AttributeError, match="frozen"):
        del info.rank


def test_rank_info_refuses_fields_that_it_does_not_have_and_asks_for_those_that_it_needs() -> None:
    with pytest.raises(TypeError, match="unknown: dp"):
        RankInfo(rank=0, world_size=1, dp=3)  # type: ignore[call-arg]  # on purpose
    with pytest.raises(TypeError, match="missing: world_size"):
        RankInfo(rank=0)  # type: ignore[call-arg]  # on purpose


@pytest.mark.parametrize("value", ["1", 1.0, None, True])
def test_rank_info_refuses_coordinates_that_are_no_whole_numbers(value: object) -> None:
    with pytest.raises(TopologyError, match=r"RankInfo\.tp_rank is a whole number, not "):
        RankInfo(rank=0, world_size=1, tp_rank=value)  # type: ignore[arg-type]  # on purpose
