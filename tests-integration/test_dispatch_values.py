"""The properties of the dispatch with what pipelines send: DataProto, torch tensors, NumPy arrays."""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from roll_dispatch import (
    Broadcast,
    CollectError,
    Direct,
    Dispatch,
    Execute,
    RankInfo,
    Route,
    SplitError,
    Topology,
    collect,
    plan_call,
    register,
    simulate,
    split,
)
from roll_dispatch.testing import bijections
from roll_executor import Worker
from roll_protocol import DataProto

COMPUTE = Dispatch.DP_MP_COMPUTE
ROWS = (0, 1, 2, 5, 7)


def batch(rows: int) -> DataProto:
    """A batch whose row i is recognised by its columns."""
    return DataProto.from_dict(
        tensors={
            "ids": torch.arange(rows * 3).reshape(rows, 3),
            "mask": torch.arange(rows) % 2 == 0,
            "score": torch.arange(rows, dtype=torch.bfloat16),
        },
        non_tensors={"text": np.array([f"row {row}" for row in range(rows)], dtype=object)},
        meta_info={"step": 7, "nested": {"keep": True}},
    )


def objects(rows: int) -> np.ndarray[Any, Any]:
    """An array of objects of different kinds."""
    found = np.empty(rows, dtype=object)
    found[:] = [{"row": row} if row % 2 else f"row {row}" for row in range(rows)]
    return found


MAKERS: dict[str, Callable[[int], Any]] = {
    "DataProto": batch,
    "int64 tensor": lambda rows: torch.arange(rows * 2).reshape(rows, 2),
    "bfloat16 tensor": lambda rows: torch.arange(rows, dtype=torch.bfloat16),
    "bool tensor": lambda rows: torch.arange(rows) % 3 == 0,
    "float array": lambda rows: np.linspace(0, 1, rows * 3).reshape(rows, 3),
    "object array": objects,
    "string array": lambda rows: np.array([f"row {row}" for row in range(rows)], dtype="U8"),
    "TensorDict": lambda rows: TensorDict({"a": torch.arange(rows), "b": {"c": torch.ones(rows, 2)}}, [rows]),
}


def same(one: Any, other: Any) -> bool:
    """Whether two values are of one type and equal in every row, dtype and shape."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())
    if isinstance(one, TensorDict):
        return one.batch_size == other.batch_size and bool((one == other).all())
    return bool(one == other)


def owned(rows: int, dp_size: int, dp_rank: int) -> slice:
    """The rows of one DP rank, dealt out one at a time."""
    sizes = [sum(row % dp_size == rank for row in range(rows)) for rank in range(dp_size)]
    return slice(sum(sizes[:dp_rank]), sum(sizes[: dp_rank + 1]))


@cache
def topologies() -> list[Topology]:
    """Every shape up to 3 on each axis, half in Megatron's rank order and half in a random one."""
    shapes = product((1, 2, 3), repeat=4)
    plain = [Topology.from_sizes(dp * tp * pp * cp, tp=tp, pp=pp, cp=cp) for dp, tp, pp, cp in shapes]
    return [next(bijections(t, 1, seed=seed)) if seed % 2 else t for seed, t in enumerate(plain)]


def calls(
    topology: Topology, value: Any, rows: int
) -> Iterator[tuple[Dispatch, tuple[Any, ...], dict[str, Any]]]:
    """Calls of every mode that splits rows."""
    world = topology.world_size
    yield COMPUTE, (value,), {}
    yield COMPUTE.with_options(pad=True), (value,), {}
    yield COMPUTE.with_options(empty="skip"), (value,), {}
    yield Dispatch.over("dp", "cp"), (value,), {}
    yield Dispatch.DIRECT, (Direct(value, to=[(5 * row) % world for row in range(rows)]),), {}
    yield Dispatch.balanced("costs"), (value,), {"costs": np.arange(rows)[::-1] % 4}


@st.composite
def shuffled(draw: st.DrawFn) -> Topology:
    """A topology of any shape up to 4 on each axis, with its ranks in any order."""
    dp, tp, pp, cp = (draw(st.integers(1, 4)) for _ in range(4))
    plain = Topology.from_sizes(dp * tp * pp * cp, tp=tp, pp=pp, cp=cp)
    return next(bijections(plain, 1, seed=draw(st.integers(0, 2**32))))


@pytest.mark.parametrize("kind", MAKERS)
def test_every_row_reaches_exactly_the_ranks_of_its_dp_rank_in_order(kind: str) -> None:
    for topology, rows in product(topologies(), ROWS):
        value = MAKERS[kind](rows)
        expected = [value[owned(rows, topology.dp_size, dp)] for dp in range(topology.dp_size)]
        parts = split(COMPUTE, topology, value, named=value)
        seen: dict[int, Any] = {}
        for info, part in zip(topology, parts, strict=True):
            assert part is not None
            assert seen.setdefault(info.dp_rank, part) is part
        for dp, part in seen.items():
            assert same(part[0][0], expected[dp])
            assert same(part[1]["named"], expected[dp])


@pytest.mark.parametrize("kind", MAKERS)
def test_collecting_what_was_split_gives_the_input_for_every_rank_order_and_mode(kind: str) -> None:
    for topology, rows in product(topologies(), (0, 2, 5)):
        value = MAKERS[kind](rows)
        for mode, args, kwargs in calls(topology, value, rows):
            call = plan_call(mode, topology, args, kwargs)
            outputs = {rank: call.parts[rank][0][0] for rank in call.collecting_ranks}  # type: ignore[index]  # these ranks are called
            found = call.collect(outputs)
            assert same(found, value), f"{mode.name} {rows} rows {topology}"


@pytest.mark.parametrize("kind", MAKERS)
@settings(deadline=None, max_examples=40)
@given(topology=shuffled(), rows=st.integers(0, 200))
def test_collect_inverts_split_for_any_rows_and_any_rank_order(
    kind: str, topology: Topology, rows: int
) -> None:
    value = MAKERS[kind](rows)
    for mode, args, kwargs in calls(topology, value, rows):
        call = plan_call(mode, topology, args, kwargs)
        outputs = [None if part is None else part[0][0] for part in call.parts]
        assert same(call.collect(outputs), value)


@settings(deadline=None, max_examples=60)
@given(topology=shuffled(), rows=st.integers(0, 200))
def test_every_kind_is_cut_at_the_same_rows_although_their_own_chunks_differ(
    topology: Topology, rows: int
) -> None:
    tensor, array = torch.arange(rows), np.arange(rows)
    sample = DataProto.from_dict(tensors={"row": tensor})
    parts = split(
        COMPUTE, topology, sample, tensor, array, list(range(rows)), fields={"row": tensor, "n": rows}
    )
    for info, part in zip(topology, parts, strict=True):
        assert part is not None
        (data, tensor_part, array_part, items), named = part
        expected = list(range(rows))[owned(rows, topology.dp_size, info.dp_rank)]
        assert data["row"].tolist() == expected
        assert (
            tensor_part.tolist()
            == array_part.tolist()
            == items
            == named["fields"]["row"].tolist()
            == expected
        )
        assert named["fields"]["n"] == rows


def test_uneven_tensors_are_not_cut_by_their_own_chunk() -> None:
    tensor = torch.arange(5)
    assert [part.tolist() for part in tensor.chunk(4)] == [[0, 1], [2, 3], [4]]
    parts = split(COMPUTE, Topology.data_parallel(4), tensor)
    assert [part[0][0].tolist() for part in parts if part] == [[0, 1], [2], [3], [4]]


@pytest.mark.parametrize("kind", ["int64 tensor", "float array"])
def test_parts_are_views_of_what_the_caller_holds(kind: str) -> None:
    value = MAKERS[kind](8)
    for part in split(COMPUTE, Topology.data_parallel(4), value):
        assert part is not None
        if isinstance(value, torch.Tensor):
            assert part[0][0].untyped_storage().data_ptr() == value.untyped_storage().data_ptr()
        else:
            assert np.shares_memory(part[0][0], value)


@pytest.mark.parametrize("kind", MAKERS)
def test_dispatch_first_gives_peers_no_rows_of_the_same_kind(kind: str) -> None:
    topology = Topology.from_sizes(8, tp=2, pp=2)
    value = MAKERS[kind](5)
    for mode in (Dispatch.DP_MP_DISPATCH_FIRST, Dispatch.DP_MP_DISPATCH_FIRST_COLLECT_ALL):
        for info, part in zip(topology, split(mode, topology, value), strict=True):
            assert part is not None
            first = (info.tp_rank, info.pp_rank) == (0, 0)
            assert type(part[0][0]) is type(value)
            assert len(part[0][0]) == (len(value[owned(5, 2, info.dp_rank)]) if first else 0)


def test_dispatch_first_gives_peers_the_meta_data_of_a_batch() -> None:
    parts = split(Dispatch.DP_MP_DISPATCH_FIRST, Topology.from_sizes(2, tp=2), batch(3))
    assert parts[1] is not None
    assert parts[1][0][0].meta_info == {"step": 7, "nested": {"keep": True}}


@pytest.mark.parametrize("kind", MAKERS)
def test_what_ranks_return_that_do_not_answer_is_ignored(kind: str) -> None:
    value = MAKERS[kind](5)
    for topology in topologies():
        outputs: list[Any] = [
            None if part is None else part[0][0] for part in split(COMPUTE, topology, value)
        ]
        for rank in range(topology.world_size):
            if rank not in topology.collecting_ranks:
                outputs[rank] = None if rank % 2 else torch.zeros(3)
        assert same(collect(COMPUTE, topology, outputs), value)


@pytest.mark.parametrize("kind", MAKERS)
def test_values_are_broadcast_whole_as_the_same_object(kind: str) -> None:
    value = MAKERS[kind](5)
    topology = Topology.from_sizes(4, tp=2)
    for parts in (
        split(COMPUTE, topology, [1, 2, 3], Broadcast(value)),
        split(Dispatch.ONE_TO_ALL, topology, 0, value),
    ):
        assert all(part is not None and part[0][1] is value for part in parts)


@pytest.mark.parametrize("value", [torch.tensor(3.0), np.float64(2.5), np.array(7), torch.tensor(True)])
def test_values_without_dimensions_are_one_value(value: Any) -> None:
    topology = Topology.data_parallel(2)
    assert all(part is not None and part[0][0] is value for part in split(COMPUTE, topology, value))
    assert collect(COMPUTE, topology, [value, value]) == [value, value]


def test_rank_zero_alone_receives_the_whole_batch() -> None:
    route = Route(dispatch_mode=COMPUTE, execute_mode=Execute.RANK_ZERO)
    call = plan_call(route, Topology.from_sizes(4, tp=2), (batch(5),))
    assert call.parts[0] is not None
    assert same(call.collect({0: call.parts[0][0][0]}), batch(5))


def test_results_keep_their_type_whatever_the_dp_size() -> None:
    for dp in (1, 2, 3):
        topology = Topology.data_parallel(dp)
        for kind, make in MAKERS.items():
            assert type(collect(COMPUTE, topology, [make(2)] * dp)) is type(make(2)), kind
        metrics = [DataProto(meta_info={"metrics": {"loss": 0.5}})] * dp
        found = collect(COMPUTE, topology, metrics)
        assert isinstance(found, DataProto)
        assert type(found.meta_info["metrics"]["loss"]) is type(
            DataProto.concat([metrics[0], metrics[0]]).meta_info["metrics"]["loss"]
        )


def test_lengths_that_differ_are_told_by_argument() -> None:
    with pytest.raises(
        SplitError, match=r"over dp size 2, but they differ .* argument 0 has 3, argument 'labels' has 4"
    ):
        split(COMPUTE, Topology.data_parallel(2), batch(3), labels=torch.arange(4))


def test_kinds_that_differ_between_ranks_are_told() -> None:
    with pytest.raises(CollectError, match="rank 0 a Tensor, rank 1 a ndarray"):
        collect(COMPUTE, Topology.data_parallel(2), [torch.arange(2), np.arange(2)])
    with pytest.raises(CollectError, match="rank 0 a DataProto, rank 1 a NoneType"):
        collect(COMPUTE, Topology.data_parallel(2), [batch(2), None])


class Writer:
    """A worker that writes to everything that it receives."""

    rank_info: RankInfo

    @register(COMPUTE)
    def write(self, data: DataProto, tensor: torch.Tensor, array: np.ndarray[Any, Any]) -> DataProto:
        tensor.add_(100)
        array += 100
        data["ids"].mul_(2)
        data.meta_info["nested"]["keep"] = False
        data["sum"] = tensor + torch.from_numpy(array)
        return data


def test_a_simulated_worker_that_writes_in_place_reaches_neither_caller_nor_peers() -> None:
    topology = next(bijections(Topology.from_sizes(8, tp=2, pp=2), 1, seed=3))
    data, tensor, array = batch(5), torch.arange(5), np.arange(5)
    simulation = simulate(Writer, topology)

    result = simulation.write(data, tensor, array)

    assert same(data, batch(5))
    assert tensor.tolist() == array.tolist() == [0, 1, 2, 3, 4]
    assert result["ids"].tolist() == (2 * batch(5)["ids"]).tolist()
    assert result["sum"].tolist() == [200 + 2 * row for row in range(5)]
    for record in simulation.received:
        mine = owned(5, 2, topology[record.rank].dp_rank)
        assert record.args[0]["ids"].tolist() == batch(5)["ids"][mine].tolist()
        assert record.args[1].tolist() == record.args[2].tolist() == list(range(5))[mine]
        assert record.args[0].meta_info["nested"] == {"keep": True}


class Scorer(Worker):
    """A worker of the executor."""

    @register(COMPUTE)
    def score(self, data: DataProto) -> torch.Tensor:
        offset: int = self.worker_config["offset"]
        scores: torch.Tensor = data["ids"].sum(dim=1) + offset
        return scores

    @register(Dispatch.ONE_TO_ALL)
    def where(self) -> tuple[int, int, int]:
        return self.rank, self.world_size, self.rank_info.tp_rank


def test_a_worker_of_the_executor_is_simulated_with_its_configuration() -> None:
    simulation = simulate(Scorer, Topology.from_sizes(4, tp=2), make=lambda info: Scorer({"offset": 1}))

    assert simulation.score(batch(3)).tolist() == [4, 13, 22]
    assert simulation.where() == [(0, 4, 0), (1, 4, 1), (2, 4, 0), (3, 4, 1)]
