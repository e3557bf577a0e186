"""Running a registered class in this process, with no executor: split, call every rank, join."""

import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from typing import Any, Generic, TypeVar

from roll_dispatch.call import check_arguments, plan_call
from roll_dispatch.errors import RegisterError
from roll_dispatch.rank_info import RankInfo
from roll_dispatch.register import registered_methods
from roll_dispatch.topology import Topology

W = TypeVar("W")


class Received:
    """What one rank received in one call, and what it returned."""

    __slots__ = ("_parcel", "method", "output", "rank")

    def __init__(
        self, method: str, rank: int, parcel: Any, output: object
    ) -> None:  # Any: a Parcel, loaded late
        self.method = method
        self.rank = rank
        self.output = output
        """What the method returned; the items, for a generator."""
        self._parcel = parcel

    @property
    def args(self) -> tuple[Any, ...]:  # Any: arguments of the user's own method
        """The positional arguments as they arrived, whatever the worker has written to its own since."""
        args: tuple[Any, ...] = self._parcel.open()[0]  # Any: as above
        return args

    @property
    def kwargs(self) -> Mapping[str, Any]:  # Any: arguments of the user's own method
        """The keyword arguments as they arrived."""
        kwargs: Mapping[str, Any] = self._parcel.open()[1]  # Any: as above
        return kwargs

    def __repr__(self) -> str:
        return f"<{self.method} on rank {self.rank}: {self.args} {self.kwargs} -> {self.output!r}>"


class Simulation(Generic[W]):
    """A worker class on every rank of a topology, in this process. Made by `simulate`.

    Registered methods are called on it as on a cluster: `simulation.train_step(batch)`. Ranks run one after
    another in rank order; the coroutines of an async method run together, in an event loop of their call.
    """

    def __init__(self, worker_cls: type[W], topology: Topology, make: Callable[[RankInfo], W]) -> None:
        self._worker_cls = worker_cls
        self._routes = registered_methods(worker_cls)
        self.topology = topology
        self.workers = [make(info) for info in topology]
        """The worker of each rank."""
        self.received: list[Received] = []
        """What ranks received, call after call, in rank order within a call."""

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:  # Any: the user's own method
        """Return what a cluster's call of a registered method returns.

        Args:
            method: its name.
            args, kwargs: its arguments, without self.

        Raises:
            RegisterError: when no method of this name is registered.
            ArgumentError: when the arguments do not fit its signature.
            SplitError: when they cannot be split.
            CollectError: when the outputs do not fit together.
        """
        from roll_dispatch.parcel import Parcel  # here, as pickle costs more to import than this package

        if method not in self._routes:
            raise RegisterError(
                f"{self._worker_cls.__name__} has no registered method {method!r}; registered are "
                f"{', '.join(sorted(self._routes)) or 'none'}"
            )
        check_arguments(getattr(self._worker_cls, method), args, kwargs)
        planned = plan_call(self._routes[method], self.topology, args, kwargs)
        packed = {id(part): Parcel(part) for part in {id(p): p for p in planned.parts if p}.values()}
        sent = {rank: packed[id(part)] for rank, part in enumerate(planned.parts) if part is not None}
        outputs = _run(self.workers, method, {rank: parcel.open() for rank, parcel in sent.items()})
        self.received += [Received(method, rank, parcel, outputs[rank]) for rank, parcel in sent.items()]
        return planned.collect({rank: Parcel(outputs[rank]).open() for rank in planned.collecting_ranks})

    def __getattr__(self, name: str) -> Callable[..., Any]:  # Any: the user's own method
        if name.startswith("_") or name not in self._routes:
            raise AttributeError(f"a simulation of registered methods has no {name!r}")

        def call(*args: Any, **kwargs: Any) -> Any:  # Any: the user's own method
            return self.call(name, *args, **kwargs)

        return call


def simulate(
    worker_cls: type[W], topology: Topology, *, make: Callable[[RankInfo], W] | None = None
) -> Simulation[W]:
    """Return a class of workers that runs in this process: what a contract test of a worker needs.

    Every rank has its own worker and receives its own copy-on-write arguments, as after a real send: a worker
    that writes to what it received reaches neither the caller nor its peers. Results are sent back likewise.

    Args:
        worker_cls: a class with registered methods.
        topology: the ranks.
        make: makes the worker of a rank; by default `worker_cls()`. Each worker has `rank_info`, `rank` and
            `world_size` set before and after its constructor runs, where its class allows it.

    Example:
        >>> class Doubler:
        ...     @register(Dispatch.DP_MP_COMPUTE)
        ...     def double(self, numbers: list[int]) -> list[int]:
        ...         return [2 * number for number in numbers]
        >>> simulate(Doubler, Topology.from_sizes(4, tp=2)).double([1, 2, 3])
        [2, 4, 6]
    """

    def place(info: RankInfo) -> W:
        if make is not None:
            worker = make(info)
        else:
            worker = worker_cls.__new__(worker_cls)
            _tell(worker, info)
            try:
                worker.__init__()  # type: ignore[misc]  # the constructor, after the worker knows its place
            except TypeError as error:
                error.add_note(f"a {worker_cls.__name__} that needs more is made by simulate(..., make=...)")
                raise
        _tell(worker, info)
        return worker

    return Simulation(worker_cls, topology, place)


def _tell(worker: object, info: RankInfo) -> None:
    """Set what an executor's worker has, except where the class itself says it."""
    for name, value in (("rank_info", info), ("rank", info.rank), ("world_size", info.world_size)):
        if hasattr(worker, "__dict__") and not isinstance(getattr(type(worker), name, None), property):
            setattr(worker, name, value)


def _run(workers: list[Any], method: str, sent: dict[int, tuple[Any, Any]]) -> dict[int, Any]:  # Any: user's
    outputs: dict[int, Any] = {}  # Any: what the user's own method returns
    for rank, (args, kwargs) in sent.items():
        try:
            found = getattr(workers[rank], method)(*args, **kwargs)
            outputs[rank] = list(found) if isinstance(found, Generator) else found
        except Exception as error:
            _close(outputs)
            error.add_note(f"raised by {method} on rank {rank}")
            raise
    if any(isinstance(output, (Coroutine, AsyncGenerator)) for output in outputs.values()):
        import asyncio  # here, as it costs more to import than all of this package

        return asyncio.run(_gather(method, outputs))
    return outputs


async def _gather(
    method: str, outputs: dict[int, Any]
) -> dict[int, Any]:  # Any: what the user's method returns
    asyncio = sys.modules["asyncio"]

    async def one(rank: int, output: Any) -> Any:  # Any: what the user's own method returns
        try:
            if isinstance(output, AsyncGenerator):
                return [item async for item in output]
            return await output
        except Exception as error:
            error.add_note(f"raised by {method} on rank {rank}")
            raise

    found = await asyncio.gather(*(one(rank, output) for rank, output in outputs.items()))
    return dict(zip(outputs, found, strict=True))


def _close(outputs: dict[int, Any]) -> None:  # Any: what the user's own method returned
    """Close coroutines that will never be awaited, so that only the real error is told."""
    for output in outputs.values():
        if isinstance(output, Coroutine):
            output.close()
