"""The worker's side of a call, the same in every runtime."""

import inspect
import pickle
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from roll_dispatch import RankInfo, Route
from roll_executor.circumstances import circumstances_of
from roll_executor.errors import Where, WorkerColdError, WorkerError, WorkerRaisedError, WorkerStartError
from roll_executor.hooks import Hooks
from roll_executor.place import WorkerPlace, standing_at
from roll_executor.tracing import working
from roll_executor.transfer import Carriage

Wire = list[Any]  # Any: texts, numbers and whatever a few calls add
CIRCUMSTANCES = "__circumstances__"
"""The call that every worker answers for its cluster's recorder."""
WARMING = (
    CIRCUMSTANCES,
    "initialize",
    "setup_model_update",
    "begin_update",
    "update_parameter_in_bucket",
    "commit_update",
    "abort_update",
    "load_states",
    "offload_states",
)
"""Calls that a cold worker takes: those that make it warm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a worker needs to know of a call beside its arguments."""

    method: str
    clear_cache: bool = False
    prefetch: bool = False
    context: dict[str, str] = field(default_factory=dict)
    """Trace context, carried outside of the payload."""
    carriage: Carriage | None = None
    """What carries payloads beside the message; None: they are in it."""

    @classmethod
    def of(
        cls,
        method: str,
        route: Route,
        *,
        context: dict[str, str] | None = None,
        carriage: Carriage | None = None,
    ) -> "Header":
        """Return the header of a call of a registered method."""
        return cls(
            method=method,
            clear_cache=route.clear_cache,
            prefetch=route.prefetch,
            context=context or {},
            carriage=carriage,
        )

    def wire(self) -> bytes:
        """Return the header as bytes: Ray sends them as they are, and all ranks of a call get the same."""
        return pickle.dumps((self.method, self.clear_cache, self.prefetch, self.context, self.carriage))

    @classmethod
    def from_wire(cls, wire: bytes) -> "Header":
        """Return the header that ``wire`` gave."""
        method, clear_cache, prefetch, context, carriage = pickle.loads(wire)
        return cls(
            method=method, clear_cache=clear_cache, prefetch=prefetch, context=context, carriage=carriage
        )

    def handed_over(self, result: Any) -> Any:  # Any: result of the user's own method
        """Return what travels back in a result's place."""
        if self.carriage is None or not self.carriage.results:
            return result
        return self.carriage.load(result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a worker tells of a call beside its result."""

    started: float
    """Seconds since the epoch, by the worker's clock."""
    seconds: float
    rank_info: RankInfo | None = None
    """Its coordinates, after ``initialize``."""

    def wire(self) -> Wire:
        """Return the status in types that Ray sends without pickle (all calls but ``initialize``)."""
        return [self.started, self.seconds, self.rank_info]

    @classmethod
    def from_wire(cls, wire: Wire) -> "Status":
        """Return the status that ``wire`` gave."""
        started, seconds, rank_info = wire
        return cls(started=started, seconds=seconds, rank_info=rank_info)


@dataclass(slots=True)
class Activity:
    """What a worker is doing, for those who ask from another thread."""

    running: dict[int, tuple[str, float]] = field(default_factory=dict)
    last_sign: float = field(default_factory=time.monotonic)
    calls: int = 0

    def begin(self, method: str) -> int:
        """Note that a call begins."""
        self.calls += 1
        self.last_sign = time.monotonic()
        self.running[self.calls] = (method, self.last_sign)
        return self.calls

    def end(self, call: int) -> None:
        """Note that a call ended."""
        self.last_sign = time.monotonic()
        self.running.pop(call, None)


class Host:
    """Holds one worker and runs its methods with the hooks around them.

    Args:
        make: builds the worker.
        place: where the worker stands.
        pid: process id, for messages.
        hooks: None: those that are installed.
        cold_until: the method after which a restarted worker takes calls again; None: it takes them at once.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        place: WorkerPlace,
        pid: int,
        hooks: Hooks | None = None,
        cold_until: str | None = None,
    ) -> None:
        self.place = place
        self.cold_until = cold_until
        self.activity = Activity()
        self._where = Where(cluster=place.cluster_name, rank=place.rank, node=place.node, pid=pid)
        try:
            self.hooks = hooks or Hooks()
            with standing_at(place):
                self.worker = make()
            self.hooks.start_worker(self.worker)
        except Exception as error:
            raise self._wrap(error, "__init__") from error

    def call(self, header: Header, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Status]:
        """Run one method and return its result and what there is to tell of it."""
        started, begin = time.time(), time.perf_counter()
        with self._running(header, args, kwargs) as (args, kwargs), self._span(header):
            result = header.handed_over(self._method(header.method)(*args, **kwargs))
        return result, self._status(header, started, time.perf_counter() - begin)

    async def acall(
        self, header: Header, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Status]:
        """Run one method, which may be a coroutine."""
        started, begin = time.time(), time.perf_counter()
        with self._running(header, args, kwargs) as (args, kwargs), self._span(header):
            result = self._method(header.method)(*args, **kwargs)
            if inspect.isawaitable(result):
                result = await result
            result = header.handed_over(result)
        return result, self._status(header, started, time.perf_counter() - begin)

    def stream(self, header: Header, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
        """Run one generator method and yield what it yields."""
        with self._running(header, args, kwargs) as (args, kwargs):
            # Not "yield from": Ray sends values into generators, which a plain iterator cannot take.
            for item in getattr(self.worker, header.method)(*args, **kwargs):  # noqa: UP028
                yield item

    async def astream(
        self, header: Header, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> AsyncIterator[Any]:
        """Run one generator method, async or not, and yield what it yields."""
        with self._running(header, args, kwargs) as (args, kwargs):
            source = getattr(self.worker, header.method)(*args, **kwargs)
            if hasattr(source, "__aiter__"):
                async for item in source:
                    yield item
            else:
                for item in source:
                    yield item

    @contextmanager
    def _running(
        self, header: Header, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Note that a call runs, with the hooks around it, and let any error out as a WorkerError."""
        token = self.activity.begin(header.method)
        try:
            if header.carriage is not None:
                args = tuple(header.carriage.unload(value) for value in args)
                kwargs = {name: header.carriage.unload(value) for name, value in kwargs.items()}
            args, kwargs = self._before(header, args, kwargs)
            try:
                yield args, kwargs
            finally:
                self._after(header)
        except Exception as error:  # noqa: BLE001  # any error of the user's method travels as a WorkerError
            raise self._wrap(error, header.method) from None
        finally:
            self.activity.end(token)

    def sharing_process(self, *, beside_others: bool) -> AbstractContextManager[None]:
        """Return what a call is made in when other workers have the same process.

        Args:
            beside_others: they may be called at the same time, in other threads.
        """
        return self.hooks.sharing_process(self.worker, beside_others=beside_others)

    def abort(self) -> list[str]:
        """A peer has failed: leave any collective. Safe to call from another thread."""
        return self.hooks.abort(self.worker)

    def end(self) -> list[str]:
        """The process is about to be ended: save what would be lost. Safe to call from another thread."""
        return self.hooks.end_worker(self.worker)

    def _span(self, header: Header) -> AbstractContextManager[None]:
        return working(self.place.worker_name, header.method, header.context)

    def _method(self, name: str) -> Callable[..., Any]:  # Any: the user's own method
        if name == CIRCUMSTANCES:
            return lambda: circumstances_of(self.place, self.hooks)
        method: Callable[..., Any] = getattr(self.worker, name)
        return method

    def _before(
        self, header: Header, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self.cold_until is not None and header.method not in (*WARMING, self.cold_until):
            where = replace(self._where, method=header.method)
            raise WorkerColdError(
                f"{where}: the worker was restarted and takes no call before {self.cold_until} succeeds; "
                "push the weights to it first",
                where=where,
            )
        return self.hooks.before_call(
            self.worker, method=header.method, prefetch=header.prefetch, args=args, kwargs=kwargs
        )

    def _after(self, header: Header) -> None:
        self.hooks.after_call(self.worker, method=header.method, clear_cache=header.clear_cache)

    def _status(self, header: Header, started: float, seconds: float) -> Status:
        if header.method == self.cold_until:
            self.cold_until = None
        told = getattr(self.worker, "rank_info", None) if header.method == "initialize" else None
        return Status(started=started, seconds=seconds, rank_info=told)

    def _wrap(self, error: Exception, method: str) -> WorkerError:
        if isinstance(error, WorkerError):
            return error  # a cluster that this worker called has failed: its own error says more
        kind = WorkerStartError if method == "__init__" else WorkerRaisedError
        where = replace(self._where, method=method)
        text = "".join(traceback.format_exception(type(error), error, _below(error.__traceback__)))
        return kind(
            f"{where} raised {type(error).__name__}: {error}",
            where=where,
            remote_traceback=text,
            original=picklable(error),
        )


def _below(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without its first frames, which are ours."""
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def picklable(error: BaseException) -> BaseException | None:
    """Return the error when it survives pickling, else None."""
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  # a user's exception may fail to pickle in any way; the text says it all then
        return None
    return error if isinstance(copy, BaseException) else None
