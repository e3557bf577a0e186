import asyncio
import pickle
from array import array
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from roll_dispatch import (
    ArgumentError,
    Dispatch,
    Execute,
    RankInfo,
    RegisterError,
    SplitError,
    Topology,
    register,
    simulate,
)

TOPOLOGY = Topology.from_sizes(8, tp=2, pp=2)


class Scaler:
    """A worker that writes to everything that it is given."""

    def __init__(self, scale: int = 10) -> None:
        self.scale = scale
        self.rank_at_birth = self.rank_info.rank if hasattr(self, "rank_info") else None

    rank_info: RankInfo

    @register(Dispatch.DP_MP_COMPUTE)
    def compute(self, rows: list[int], shared: dict[str, list[int]] | None = None) -> list[int]:
        rows[:] = [self.scale * row for row in rows]
        if shared is not None:
            shared["seen"].append(self.rank_info.rank)
        return rows

    @register(Dispatch.ONE_TO_ALL)
    def place(self) -> tuple[int, int, int]:
        return self.rank_info.dp_rank, self.rank_info.tp_rank, self.rank_info.pp_rank

    @register(Dispatch.ONE_TO_ALL_ONE, execute_mode=Execute.RANK_ZERO)
    def only_first(self) -> int:
        return self.rank_info.rank

    @register(Dispatch.DP_MP_COMPUTE)
    async def later(self, rows: list[int]) -> list[int]:
        await asyncio.sleep(0)
        return [self.scale * row for row in rows]

    @register(Dispatch.DP_MP_COMPUTE)
    def stream(self, rows: list[int]) -> Iterator[int]:
        for row in rows:
            yield self.scale * row

    @register(Dispatch.DP_MP_COMPUTE)
    async def later_stream(self, rows: list[int]) -> AsyncIterator[int]:
        for row in rows:
            yield self.scale * row

    @register(Dispatch.DP_MP_COMPUTE, reducer="mean")
    def loss(self, rows: list[int]) -> float:
        return sum(rows) / len(rows)

    @register(Dispatch.ONE_TO_ALL)
    def fail(self) -> None:
        if self.rank_info.rank == 3:
            raise ValueError("rank 3 is unwell")

    @register(Dispatch.ONE_TO_ALL)
    async def fail_later(self) -> None:
        if self.rank_info.rank == 3:
            raise ValueError("rank 3 is unwell later")

    @register(Dispatch.ONE_TO_ALL)
    def state(self) -> list[int]:
        return self.kept

    kept: list[int] = []  # noqa: RUF012  # on purpose: shared by the workers


@pytest.mark.parametrize("method", ["compute", "later", "stream", "later_stream"])
def test_every_kind_of_method_runs_on_every_rank_and_is_joined(method: str) -> None:
    simulation = simulate(Scaler, TOPOLOGY)
    assert simulation.call(method, [1, 2, 3]) == [10, 20, 30]
    assert [record.rank for record in simulation.received] == list(range(8))


def test_registered_methods_are_called_as_on_a_cluster() -> None:
    assert simulate(Scaler, TOPOLOGY).compute([1, 2, 3]) == [10, 20, 30]
    assert simulate(Scaler, TOPOLOGY).loss([1, 2, 6]) == 3.0


def test_workers_know_their_place_before_and_after_they_are_made() -> None:
    simulation = simulate(Scaler, TOPOLOGY)
    assert [worker.rank_at_birth for worker in simulation.workers] == list(range(8))
    assert simulation.place() == [(i.dp_rank, i.tp_rank, i.pp_rank) for i in TOPOLOGY]


def test_workers_may_be_made_by_the_test() -> None:
    simulation = simulate(Scaler, TOPOLOGY, make=lambda info: Scaler(scale=info.dp_rank + 1))
    assert simulation.compute([1, 1, 1]) == [1, 1, 2]
    assert simulation.workers[5].rank_info == TOPOLOGY[5]


def test_a_worker_that_writes_to_its_arguments_reaches_neither_caller_nor_peers() -> None:
    simulation = simulate(Scaler, TOPOLOGY)
    rows, shared = [1, 2, 3], {"seen": [0, 0, 0]}
    simulation.compute(rows, shared)
    assert rows == [1, 2, 3]
    assert shared == {"seen": [0, 0, 0]}
    assert [record.output for record in simulation.received] == [[10, 20], [10, 20], [30], [30]] * 2


def test_the_record_tells_what_arrived_whatever_the_worker_has_written_since() -> None:
    simulation = simulate(Scaler, TOPOLOGY)
    simulation.compute([1, 2, 3], shared={"seen": [7, 8, 9]})
    assert [(r.method, r.args, r.kwargs) for r in simulation.received[1:3]] == [
        ("compute", ([1, 2],), {"shared": {"seen": [7, 8]}}),
        ("compute", ([3],), {"shared": {"seen": [9]}}),
    ]
    assert repr(simulation.received[2]) == "<compute on rank 2: ([3],) {'shared': {'seen': [9]}} -> [30]>"


def test_results_come_back_as_after_a_send() -> None:
    found = simulate(Scaler, TOPOLOGY).state()
    found[0].append(1)
    assert found[1] == []
    assert Scaler.kept == []


class Buffer:
    """Numbers that travel out of band, as arrays and batches do."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = numbers

    def __reduce_ex__(self, protocol: Any) -> tuple[object, ...]:
        return Buffer, (pickle.PickleBuffer(self.numbers),)


class Writer:
    @register(Dispatch.ONE_TO_ALL)
    def write(self, buffer: Buffer, empty: Buffer) -> tuple[list[int], bool]:
        before = list(memoryview(buffer.numbers).cast("B"))
        memoryview(buffer.numbers)[0] = 9
        return before, len(memoryview(empty.numbers)) == 0


def test_out_of_band_buffers_are_mapped_copy_on_write() -> None:
    numbers = array("B", [1, 2, 3])
    simulation = simulate(Writer, Topology.data_parallel(3))
    assert simulation.write(Buffer(numbers), Buffer(array("B"))) == [([1, 2, 3], True)] * 3
    assert numbers.tolist() == [1, 2, 3]
    assert list(simulation.received[0].args[0].numbers) == [1, 2, 3]


def test_two_buffers_arrive_apart() -> None:
    class Pair:
        @register(Dispatch.ONE_TO_ALL_ONE)
        def read(self, first: Buffer, second: Buffer) -> list[list[int]]:
            return [list(memoryview(b.numbers)) for b in (first, second)]

    found = simulate(Pair, Topology.data_parallel(2)).read(
        Buffer(array("B", range(100))), Buffer(array("B", range(100, 107)))
    )
    assert found == [list(range(100)), list(range(100, 107))]


def test_values_that_pickle_cannot_carry_are_deep_copied() -> None:
    class Local:
        def __init__(self) -> None:
            self.items = [1]

    class Toucher:
        @register(Dispatch.ONE_TO_ALL)
        def touch(self, value: Local) -> Local:
            value.items.append(2)
            return value

    value = Local()
    found = simulate(Toucher, Topology.data_parallel(2)).touch(value)
    assert value.items == [1]
    assert [one.items for one in found] == [[1, 2], [1, 2]]


def test_rank_zero_alone_is_called_where_the_route_says_so() -> None:
    simulation = simulate(Scaler, TOPOLOGY)
    assert simulation.only_first() == 0
    assert [record.rank for record in simulation.received] == [0]


@pytest.mark.parametrize(
    ("method", "words"), [("fail", "rank 3 is unwell"), ("fail_later", "rank 3 is unwell later")]
)
def test_an_error_says_which_method_and_rank_raised_it(method: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        simulate(Scaler, TOPOLOGY).call(method)
    assert caught.value.__notes__ == [f"raised by {method} on rank 3"]


def test_wrong_calls_fail_before_any_worker_runs() -> None:
    simulation = simulate(Scaler, TOPOLOGY)
    with pytest.raises(ArgumentError, match="missing a required argument: 'rows'"):
        simulation.compute()
    with pytest.raises(SplitError, match="argument 'rows' has 2, argument 'shared'"):
        simulation.compute([1, 2], {"seen": [1]})
    with pytest.raises(
        RegisterError, match="Scaler has no registered method 'rank_info'; registered are compute, fail"
    ):
        simulation.call("rank_info")
    with pytest.raises(AttributeError, match="a simulation of registered methods has no 'unknown'"):
        simulation.unknown()
    assert simulation.received == []


def test_workers_have_rank_and_world_size_where_their_class_does_not_say_it() -> None:
    class Own:
        @property
        def rank(self) -> str:
            return "mine"

        world_size = -1

        @register(Dispatch.ONE_TO_ALL)
        def tell(self) -> tuple[str, int]:
            return self.rank, self.world_size

    class Plain:
        rank: int

        @register(Dispatch.ONE_TO_ALL)
        def tell(self) -> int:
            return self.rank

    assert simulate(Own, Topology.data_parallel(2)).tell() == [("mine", 2), ("mine", 2)]
    assert simulate(Plain, Topology.data_parallel(2)).tell() == [0, 1]


def test_a_worker_that_needs_more_is_refused_with_the_way_to_make_it() -> None:
    class Needy:
        def __init__(self, config: object) -> None:
            self.config = config

    with pytest.raises(TypeError, match="config") as caught:
        simulate(Needy, TOPOLOGY)
    assert caught.value.__notes__ == ["a Needy that needs more is made by simulate(..., make=...)"]


def test_classes_with_slots_are_simulated_without_coordinates() -> None:
    class Slotted:
        __slots__ = ()

        @register(Dispatch.DP_MP_COMPUTE)
        def echo(self, rows: list[int]) -> list[int]:
            return rows

    assert simulate(Slotted, TOPOLOGY).echo([1, 2]) == [1, 2]


def test_a_method_that_fails_before_async_peers_run_closes_them() -> None:
    class Mixed:
        rank_info: RankInfo

        @register(Dispatch.ONE_TO_ALL)
        def work(self) -> Any:
            async def wait() -> None: ...

            if self.rank_info.rank == 1:
                raise ValueError("too early")
            return wait()

    with pytest.raises(ValueError, match="too early"):
        simulate(Mixed, Topology.data_parallel(2)).work()
