"""The contract that every runtime keeps, as checks that take a manager of that runtime.

Example:
    >>> @pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)  # doctest: +SKIP
    ... def test_local_runtime_keeps_the_contract(check):
    ...     with ResourceManager(runtime="local") as manager:
    ...         check(manager)
"""

import asyncio
import pickle
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, TypeVar, cast

from roll_dispatch import Dispatch, RankInfo, register
from roll_executor.cluster import Cluster
from roll_executor.errors import (
    BindingError,
    CallTimeoutError,
    ClusterClosedError,
    WorkerError,
    WorkerRaisedError,
    WorkerStartError,
)
from roll_executor.pending import PendingResult
from roll_executor.stats import MethodStats
from roll_executor.worker import Worker
from roll_executor.worker_config import WorkerConfig
from roll_resources import ResourceManager


class UnpicklableError(Exception):
    """An error that pickle cannot copy."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


class ContractWorker(Worker):
    """A worker that does a little of everything."""

    def __init__(self, worker_config: Any) -> None:  # Any: see Worker
        super().__init__(worker_config)
        self.kept: list[object] = []

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, clear_cache=False)
    def initialize(self, pipeline_config: Any) -> None:  # Any: see Worker
        """Publish coordinates in which the data parallel order is not the rank order."""
        super().initialize(pipeline_config)
        if pipeline_config == "fail":
            raise ValueError("initialize was told to fail")
        if pipeline_config == "reversed":
            last = self.world_size - 1
            self.rank_info = self.rank_info.replace(dp_rank=last - self.rank)
        if pipeline_config == "tensor parallel":
            self.rank_info = RankInfo(
                rank=self.rank, world_size=self.world_size, tp_rank=self.rank, tp_size=self.world_size
            )

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False)
    def double(self, rows: list[int]) -> list[int]:
        """Return every row doubled."""
        return [2 * row for row in rows]

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, clear_cache=False)
    def place(self) -> tuple[int, int, int, str]:
        """Return rank, world size, local rank and name."""
        return self.rank, self.world_size, self.local_rank, self.worker_name

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, clear_cache=False)
    def spoil(self, value: dict[str, list[int]]) -> int:
        """Change the argument and keep it; return how long it was before."""
        before = len(value["rows"])
        value["rows"].append(self.rank)
        self.kept.append(value)
        return before

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, clear_cache=False)
    def fail(self, rank: int, kind: str = "value") -> int:
        """Raise on one rank."""
        if self.rank == rank:
            if kind == "unpicklable":
                raise UnpicklableError("this", "that")
            raise ValueError(f"rank {rank} was told to fail")
        return self.rank

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, clear_cache=False)
    def sleep(self, seconds: float, rank: int = -1) -> int:
        """Sleep, on one rank or (-1) on all."""
        if rank in (-1, self.rank):
            time.sleep(seconds)
        return self.rank

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, clear_cache=False)
    def meet(self) -> str:
        """Meet the other ranks at the cluster's master address; return what rank 0 says."""
        address = (self.master_addr, self.master_port)
        if self.rank == 0:
            with socket.create_server(address, reuse_port=False) as server:
                for _ in range(self.world_size - 1):
                    peer, _ = server.accept()
                    with peer:
                        peer.sendall(b"hello")
            return "hello"
        deadline = time.monotonic() + 20
        while True:
            try:
                with socket.create_connection(address, timeout=20) as connection:
                    return connection.recv(5).decode()
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False)
    def count(self, rows: list[int], hang_at: int = -1, fail_at: int = -1) -> Iterator[int]:
        """Yield the rows one by one; hang before one, fail before another."""
        for row in rows:
            if row == hang_at:
                time.sleep(20)
            if row == fail_at:
                raise ValueError(f"told to fail before {row}")
            yield row

    def plain(self, value: int) -> int:
        """Return the value plus the rank; not registered."""
        return value + self.rank


class AsyncContractWorker(Worker):
    """A worker with coroutine methods."""

    def __init__(self, worker_config: Any) -> None:  # Any: see Worker
        super().__init__(worker_config)
        self.opened = asyncio.Event()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, clear_cache=False)
    async def wait_open(self) -> int:
        """Wait until ``open`` is called."""
        await self.opened.wait()
        return self.rank

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, clear_cache=False)
    async def open(self) -> None:
        """Let ``wait_open`` go on."""
        self.opened.set()

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False)
    async def count(self, rows: list[int]) -> AsyncIterator[int]:
        """Yield the rows one by one."""
        for row in rows:
            await asyncio.sleep(0)
            yield row


class BrokenWorker(Worker):
    """A worker whose constructor raises."""

    def __init__(self, worker_config: Any) -> None:  # Any: see Worker
        super().__init__(worker_config)
        raise RuntimeError("the constructor was told to fail")


class ClashingWorker(Worker):
    """A worker whose methods cannot all be offered."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def close(self) -> None:
        """Clash with ``Cluster.close``."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def wait(self, timeout_s: float) -> None:
        """Take the parameter that every call takes."""


Manager = ResourceManager


def _open(
    manager: Manager, world_size: int = 2, worker_cls: type = ContractWorker, **changes: Any
) -> Cluster:  # Any: fields of WorkerConfig
    config = WorkerConfig(name="contract", world_size=world_size, **changes)
    return Cluster(name="contract", worker_cls=worker_cls, resource_manager=manager, worker_config=config)


E = TypeVar("E", bound=BaseException)


def _raised(kind: type[E], call: Callable[[], object]) -> E:
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def shared_check_rows_come_back_in_order(cluster: Cluster) -> None:
    """Rows are split, worked on and joined in their order, also when they are fewer than the workers."""
    assert cluster.double([1, 2, 3, 4, 5]) == [2, 4, 6, 8, 10]
    assert cluster.double([1]) == [2]


def shared_check_ranks_know_where_they_stand(cluster: Cluster) -> None:
    """Every rank has its own coordinates and name."""
    assert cluster.place() == [(0, 2, 0, "contract-0"), (1, 2, 1, "contract-1")]


def check_published_coordinates_are_used(manager: Manager) -> None:
    """Results are joined in data parallel order as ``initialize`` published it, and only then."""
    with _open(manager) as cluster:
        assert [info.dp_rank for info in cluster.worker_rank_info] == [0, 1]
        cluster.initialize("reversed", blocking=False)
        assert [info.dp_rank for info in cluster.worker_rank_info] == [1, 0]
        assert cluster.double([1, 2, 3]) == [2, 4, 6]
        cluster.initialize("tensor parallel")
        assert (cluster.dp_size, cluster.tp_size) == (1, 2)
        pending = cluster.double([1, 2, 3], blocking=False)
        assert (len(pending), len(pending.all_refs)) == (1, 2)
        assert pending.result() == [2, 4, 6]


def check_failed_initialize_changes_nothing(manager: Manager) -> None:
    """Coordinates stay what they were when ``initialize`` fails, and later calls work."""
    with _open(manager) as cluster:
        _raised(WorkerRaisedError, lambda: cluster.initialize("fail"))
        assert cluster.dp_size == 2
        assert cluster.double([1, 2]) == [2, 4]


def shared_check_arguments_are_each_ranks_own(cluster: Cluster) -> None:
    """What a worker does to its arguments reaches neither its peers nor the caller."""
    mine = {"rows": [1, 2]}
    assert cluster.spoil(mine) == [2, 2]
    assert cluster.spoil(mine) == [2, 2]
    assert mine == {"rows": [1, 2]}


def shared_check_non_blocking_calls_give_the_same(cluster: Cluster) -> None:
    """References resolve to what the blocking call returns, by ``result`` and by ``await``."""

    async def awaited(pending: Any) -> Any:  # Any: the result of a call
        return await pending

    pending = cluster.double([1, 2, 3], blocking=False)
    assert isinstance(pending, list)
    assert len(pending) == 2
    assert cast("PendingResult", pending).result() == [2, 4, 6]
    assert cast("PendingResult", pending).values() == [[2, 4], [6]]
    assert asyncio.run(awaited(cluster.double([1, 2, 3], blocking=False))) == [2, 4, 6]


def shared_check_errors_say_who_and_what(cluster: Cluster) -> None:
    """An error of one rank is raised once, typed, with its place and the worker's own words, and pickles."""
    for kind in ("value", "unpicklable"):
        error = _raised(WorkerRaisedError, partial(cluster.fail, 1, kind=kind))
        assert (error.cluster, error.rank, error.method) == ("contract", 1, "fail")
        assert error.pid > 0
        assert "in fail" in error.remote_traceback
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.where) == (type(error), str(error), error.where)
    assert isinstance(_raised(WorkerError, lambda: cluster.fail(0)).__cause__, ValueError)
    assert cluster.double([1, 2]) == [2, 4]


def check_deadlines_are_kept(manager: Manager) -> None:
    """A call that is late says who answered, where the others are, and does not wait for them."""
    with _open(manager, kill_peers_after_s=0.2) as cluster:
        began = time.monotonic()
        error = _raised(CallTimeoutError, lambda: cluster.sleep(20.0, rank=1, timeout_s=0.5))
        assert time.monotonic() - began < 5
        assert issubclass(CallTimeoutError, TimeoutError)
        assert error.rank == 1
        assert "ranks [0] answered" in str(error)
        assert "time.sleep(seconds)" in str(error)


def check_ranks_run_side_by_side_and_meet(manager: Manager) -> None:
    """Ranks may wait for one another, at the master address that all of them know."""
    with _open(manager, world_size=3) as cluster:
        assert cluster.meet(timeout_s=30) == ["hello"] * 3


def check_streams_yield_in_order(manager: Manager) -> None:
    """A generator method yields what its ranks yield, each rank in its order."""
    for worker_cls in (ContractWorker, AsyncContractWorker):
        with _open(manager, worker_cls=worker_cls) as cluster:
            by_rank: dict[int, list[int]] = {}
            for rank, item in cluster.count([1, 2, 3, 4]).by_rank():
                by_rank.setdefault(rank, []).append(item)
            assert by_rank == {0: [1, 2], 1: [3, 4]}


def check_streams_that_fail_or_are_late_are_told(manager: Manager) -> None:
    """A generator method that raises on one rank, or is late, ends the stream with one error."""
    with _open(manager, kill_peers_after_s=0.5) as cluster:
        got: list[int] = []
        began = time.monotonic()
        error = _raised(
            WorkerRaisedError, lambda: got.extend(cluster.count([1, 2, 3, 4], hang_at=2, fail_at=4))
        )
        assert time.monotonic() - began < 10
        assert (error.rank, error.method) == (1, "count")
        assert "told to fail before 4" in str(error)
    with _open(manager, kill_peers_after_s=0.5) as cluster:
        late = _raised(CallTimeoutError, lambda: list(cluster.count([1, 2], hang_at=2, timeout_s=0.5)))
        assert late.rank == 1


def check_coroutines_overlap(manager: Manager) -> None:
    """Calls of coroutine methods overlap in one worker."""
    with _open(manager, worker_cls=AsyncContractWorker) as cluster:
        waiting = cluster.wait_open(blocking=False)
        cluster.open()
        assert waiting.result(timeout_s=10) == [0, 1]


def shared_check_any_public_method_can_be_run(cluster: Cluster) -> None:
    """Methods that are not registered run on all ranks or on rank 0 by name."""
    assert cluster.execute_all_sync("plain", 5) == [5, 6]
    assert cluster.execute_all_async("plain", 5).values() == [5, 6]
    assert cluster.execute_rank_zero_sync("plain", 5) == 5
    _raised(AttributeError, lambda: cluster.execute_all_sync("_secret"))


def shared_check_wrong_calls_are_refused_here(cluster: Cluster) -> None:
    """A call that does not fit the signature is refused before anything is sent."""
    before = {name: counts.count + counts.failures for name, counts in cluster.stats().items()}
    assert "missing" in str(_raised(BindingError, lambda: cluster.double()))
    assert "unexpected" in str(_raised(TypeError, lambda: cluster.double([1], rows_too=[2])))
    assert "double" in str(_raised(AttributeError, lambda: cluster.tripple([1])))
    assert before == {name: counts.count + counts.failures for name, counts in cluster.stats().items()}


def check_clashing_names_are_refused(manager: Manager) -> None:
    """A class whose methods cannot be offered is refused with all reasons."""
    text = str(_raised(BindingError, lambda: _open(manager, worker_cls=ClashingWorker)))
    assert "'close'" in text
    assert "'timeout_s'" in text


def check_broken_constructors_are_told(manager: Manager) -> None:
    """A constructor that raises ends the creation with its own words; the name is free again."""
    error = _raised(WorkerStartError, lambda: _open(manager, worker_cls=BrokenWorker))
    assert "the constructor was told to fail" in str(error)
    with _open(manager) as cluster:
        assert cluster.double([1]) == [2]


def shared_check_messages_reach_every_worker(cluster: Cluster) -> None:
    """The transport of a cluster sends one message to all of its workers."""
    assert cluster.transport().send("plain", 5).result(10) == [5, 6]


def check_closed_clusters_refuse_calls(manager: Manager) -> None:
    """After ``close`` a call is refused; closing twice does nothing; the name is free again."""
    cluster = _open(manager)
    cluster.close()
    cluster.close()
    _raised(ClusterClosedError, lambda: cluster.double([1]))
    with _open(manager) as again:
        assert again.double([1]) == [2]


def shared_check_calls_are_counted(cluster: Cluster) -> None:
    """Calls, failures, seconds and bytes are counted by method."""
    old = cluster.stats().get("double", MethodStats())
    cluster.double([1, 2, 3])
    new = cluster.stats()["double"]
    assert (new.bytes_sent - old.bytes_sent, new.bytes_received - old.bytes_received) == (24, 24)
    before = cluster.stats().get("fail", MethodStats()).failures
    cluster.sleep(0.05)
    cluster.sleep(0.05)
    _raised(WorkerError, lambda: cluster.fail(0))
    stats = cluster.stats()
    assert (stats["sleep"].count, stats["sleep"].failures) == (2, 0)
    first, second = (span for span in cluster.spans() if span.method == "sleep")
    assert min(first.seconds, second.seconds) >= 0.05
    assert first.started + first.seconds <= second.started + 0.01
    assert stats["sleep"].driver_s >= stats["sleep"].worker_s >= 0.1
    assert (stats["fail"].count, stats["fail"].failures) == (0, before + 1)


def open_shared(manager: Manager) -> Cluster:
    """Return the cluster that the checks of ``SHARED_CONTRACT`` take, one after the other."""
    return _open(manager)


CONTRACT: tuple[Callable[[Manager], None], ...] = tuple(
    value for name, value in list(globals().items()) if name.startswith("check_") and callable(value)
)
"""Checks that open clusters of their own."""
SHARED_CONTRACT: tuple[Callable[[Cluster], None], ...] = tuple(
    value for name, value in list(globals().items()) if name.startswith("shared_check_") and callable(value)
)
"""Checks that leave the cluster of ``open_shared`` as they found it."""
