"""Workers in this process: the twin of the Ray runtime in which a debugger works."""

import asyncio
import copy
import os
import pickle
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from roll_executor.control import answer, health_of
from roll_executor.errors import Where, WorkerDiedError, WorkerError
from roll_executor.host import Header, Host, Status
from roll_executor.place import WorkerPlace
from roll_executor.rendezvous import HeldPort
from roll_executor.workers import END_S, Health, Launch, Outcome, Ticket
from roll_resources import Placement


class LocalRef:
    """A reference to a result in this process."""

    def __init__(self, future: "Future[Any]", index: int) -> None:  # Any: result of the user's own method
        self._future = future
        self._index = index

    def result(self, timeout_s: float | None = None) -> Any:  # Any: as above
        """Return the value, waiting for it.

        Raises:
            WorkerError: if the call failed.
            TimeoutError: if it is not there within ``timeout_s``.
        """
        return self._future.result(timeout_s)[self._index]

    @property
    def future(self) -> "Future[Any]":  # Any: as above
        """The future that the reference reads."""
        return self._future


class Packed:
    """A value as it would be sent: serialised once, and unpacked anew for every rank.

    Buffers stay where they are and are handed out read-only, so that each rank has copy-on-write arguments.
    What cannot be pickled is copied deeply instead.
    """

    def __init__(self, value: object) -> None:
        self._buffers: list[pickle.PickleBuffer] = []
        self._value = None
        try:
            self._bytes: bytes | None = pickle.dumps(value, protocol=5, buffer_callback=self._buffers.append)
        except (pickle.PicklingError, AttributeError, TypeError):
            self._bytes, self._value = None, value

    def unpack(self) -> Any:  # Any: whatever was packed
        """Return the value as one rank receives it."""
        if self._bytes is None:
            return copy.deepcopy(self._value)
        return pickle.loads(
            self._bytes, buffers=[memoryview(buffer).toreadonly() for buffer in self._buffers]
        )


class Lane:
    """A daemon thread that runs one thing after the other."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            job()

    def submit(self, job: Callable[[], None]) -> None:
        """Queue a job."""
        self._queue.put(job)

    def close(self) -> None:
        """End the thread after the jobs that are queued."""
        self._queue.put(None)


class Loop:
    """A daemon thread with an event loop, for workers with coroutine methods."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def submit(self, work: Any) -> "Future[Any]":  # Any: coroutines of the user's own methods
        """Start a coroutine."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Stop the loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(1.0)


class LocalWorkers:
    """The workers of one cluster in this process.

    A single worker without coroutines runs in the caller's thread; several run in a thread each, so that they
    may wait for one another. Hooks let each draw its own random numbers, coroutines excepted.
    """

    def __init__(self, hosts: Sequence[Host], *, order: Launch) -> None:
        self.hosts = list(hosts)
        self._order: Launch | None = order
        self._restarts = [0] * len(hosts)
        pid = os.getpid()
        wheres = [Where(cluster=order.name, rank=rank, node="local", pid=pid) for rank in range(len(hosts))]
        self.wheres = wheres
        is_async = order.is_async
        self.num_puts = 0
        self._dead: set[int] = set()
        self._loop = Loop(f"{wheres[0].cluster}-loop") if is_async else None
        several = len(hosts) > 1 and not is_async
        self._lanes = [Lane(f"{where.cluster}-{where.rank}") for where in wheres] if several else []

    def share(self, value: object) -> object:
        """Serialise a value once."""
        self.num_puts += 1
        return Packed(value)

    def submit(
        self,
        rank: int,
        header: Header,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        whole: bool = False,
    ) -> Ticket:
        """Run one call, here or in the worker's thread."""
        future: Future[Any] = Future()  # Any: result of the user's own method
        if rank in self._dead:
            future.set_exception(self._death(rank, header.method))
            return _ticket(rank, future, header.method)
        own_args, own_kwargs = _unpack(args, kwargs)
        host = self.hosts[rank]
        if self._loop is not None:
            source = self._loop.submit(host.acall(header, own_args, own_kwargs))
            source.add_done_callback(lambda done: _copy_outcome(done, future))
            return _ticket(rank, future, header.method)

        def run() -> None:
            try:
                with host.sharing_process(beside_others=bool(self._lanes)):
                    result, status = host.call(header, own_args, own_kwargs)
                    outcome = (Packed(result).unpack(), status)
            except WorkerError as error:
                _settle(future, error=error)
            else:
                _settle(future, value=outcome)

        if self._lanes:
            self._lanes[rank].submit(run)
        else:
            run()
        return _ticket(rank, future, header.method)

    def stream(
        self, rank: int, header: Header, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[Any]:
        """Run a generator method in this thread as it is read; an async one in the loop."""
        own_args, own_kwargs = _unpack(args, kwargs)
        host = self.hosts[rank]
        if self._loop is None:
            source: Iterator[Any] = host.stream(header, own_args, own_kwargs)
        else:
            source = _drain(self._loop, host.astream(header, own_args, own_kwargs))
        for item in source:
            future: Future[Any] = Future()
            future.set_result((Packed(item).unpack(), None))
            yield LocalRef(future, 0)

    def gather(
        self, tickets: Sequence[Ticket], collecting: Sequence[int], timeout_s: float | None
    ) -> tuple[dict[int, Any], dict[int, Status]]:
        """Wait for all calls, or for the first that fails."""
        futures = {ticket.result.future for ticket in tickets}
        done, late = wait(futures, timeout=timeout_s, return_when="FIRST_EXCEPTION")
        for ticket in tickets:
            if ticket.result.future in done and (error := ticket.result.future.exception()):
                raise error
        if late:
            raise TimeoutError(f"{len(late)} call(s) not done after {timeout_s} s")
        results = {ticket.rank: ticket.result for ticket in tickets}
        outputs = {rank: results[rank].result() for rank in collecting}
        return outputs, {ticket.rank: ticket.status.result() for ticket in tickets}

    def outcomes(self, tickets: Sequence[Ticket], timeout_s: float) -> dict[int, Outcome]:
        """Return how each call ended, waiting at most ``timeout_s`` for those that have not."""
        wait({ticket.result.future for ticket in tickets}, timeout=timeout_s)
        found: dict[int, Outcome] = {}
        for ticket in tickets:
            if not ticket.result.future.done():
                found[ticket.rank] = None
                continue
            error = ticket.result.future.exception()
            found[ticket.rank] = error if isinstance(error, WorkerError) else ticket.status.result()
        return found

    def explained(self, error: WorkerError) -> WorkerError:
        """Return the error: what a worker in this process wrote, the caller has seen."""
        return error

    def control(self, ranks: Sequence[int], command: str, timeout_s: float) -> dict[int, dict[str, Any]]:
        """Answer what a worker's control channel would."""
        replies = {rank: answer(self.hosts[rank], command) for rank in ranks if rank not in self._dead}
        for rank, reply in replies.items():
            own = {f"{self.wheres[rank].cluster}-{rank}", f"{self.wheres[rank].cluster}-loop", "MainThread"}
            if "stacks" in reply:
                reply["stacks"] = {
                    name: text for name, text in reply["stacks"].items() if name.rpartition(" ")[0] in own
                }
        return replies

    def health(self) -> list[Health]:
        """Return how every worker is."""
        replies = self.control(range(len(self.hosts)), "status", 0.0)
        return [health_of(rank, where, replies.get(rank)) for rank, where in enumerate(self.wheres)]

    def revive(self) -> list[int]:
        """Build the workers anew that were ended, each in a thread of its own."""
        if self._order is None or not self._dead:
            return []
        rebuilt = sorted(self._dead)
        for rank in rebuilt:
            if self._restarts[rank] >= self._order.max_restarts:
                raise self._death(rank, "__init__")
            self._restarts[rank] += 1
            placement = self._order.placements[rank]
            self.hosts[rank] = _build(self._order, placement, 0, cold_until=self._order.cold_until)
            if self._lanes:
                self._lanes[rank] = Lane(f"{self._order.name}-{rank}")
            self._dead.discard(rank)
        return rebuilt

    def surroundings(self) -> list[str]:
        """Return nothing: workers in this process share nothing worth telling."""
        return []

    def kill(self, ranks: Sequence[int]) -> None:
        """Let these workers answer no more; what a thread runs cannot be ended from outside."""
        self._dead |= set(ranks)

    def close(self) -> None:
        """Let go of all workers."""
        self.control(range(len(self.hosts)), "end", END_S)
        self.kill(range(len(self.hosts)))
        self._order = None
        for lane in self._lanes:
            lane.close()
        if self._loop is not None:
            self._loop.close()
        self._lanes, self._loop = [], None

    def _death(self, rank: int, method: str) -> WorkerDiedError:
        where = self.wheres[rank]
        return WorkerDiedError(
            f"{where} was ended; build the cluster again",
            where=Where(cluster=where.cluster, rank=rank, node=where.node, pid=where.pid, method=method),
        )


def launch(order: Launch) -> LocalWorkers:
    """Build all workers of a cluster here.

    Raises:
        WorkerStartError: if a constructor raises.
    """
    with HeldPort("127.0.0.1") as held:
        hosts = [_build(order, placement, held.port) for placement in order.placements]
    return LocalWorkers(hosts, order=order)


def _build(order: Launch, placement: Placement, master_port: int, *, cold_until: str | None = None) -> Host:
    place = WorkerPlace(
        cluster_name=order.name,
        rank=placement.rank,
        world_size=len(order.placements),
        local_rank=placement.local_rank,
        master_addr="127.0.0.1",
        master_port=master_port,
        device_ids=tuple(device.global_id for device in placement.devices),
        node="local",
    )
    config = Packed(order.config).unpack()
    return Host(lambda: order.worker_cls(config), place=place, pid=os.getpid(), cold_until=cold_until)


def resolve(refs: Sequence[object], *, timeout_s: float | None = None) -> list[object]:
    """Return the values of local references: the entry point ``roll_executor`` of the group ``roll.refs``.

    Raises:
        WorkerError: if a call failed.
        TimeoutError: if they are not there within ``timeout_s``.
    """
    from roll_executor.pending import owners_of

    for call in owners_of(refs):
        call.values(timeout_s)
    found: list[object] = []
    for reference in refs:
        assert isinstance(reference, LocalRef), "the entry point is asked for its own references only"
        try:
            found.append(reference.result(timeout_s))
        except FutureTimeoutError as late:
            raise TimeoutError(f"a result was not there within {timeout_s} s") from late
    return found


def _unpack(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(_received(value) for value in args), {
        name: _received(value) for name, value in kwargs.items()
    }


def _received(value: Any) -> Any:  # Any: arguments of the user's own method
    if isinstance(value, LocalRef):
        value = value.result()
    return value.unpack() if isinstance(value, Packed) else Packed(value).unpack()


def _ticket(rank: int, future: "Future[Any]", method: str) -> Ticket:  # Any: result of the user's own method
    return Ticket(rank, LocalRef(future, 0), LocalRef(future, 1), method)


def _settle(
    future: "Future[Any]", *, value: Any = None, error: BaseException | None = None
) -> None:  # Any: as above
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)


def _copy_outcome(source: "Future[Any]", target: "Future[Any]") -> None:  # Any: as above
    error = source.exception()
    if error is not None:
        target.set_exception(error)
    else:
        result, status = source.result()
        target.set_result((Packed(result).unpack(), status))


def _drain(loop: Loop, source: Any) -> Iterator[Any]:  # Any: the user's own async generator
    end = object()

    async def step() -> Any:  # Any: as above
        try:
            return await anext(source)
        except StopAsyncIteration:
            return end

    while (item := loop.submit(step()).result()) is not end:
        yield item
