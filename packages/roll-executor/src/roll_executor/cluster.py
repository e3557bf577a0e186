"""One role behind one object: a group of workers that is called as if it were one."""

import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from roll_dispatch import Call, Dispatch, Route, Topology, plan_call
from roll_executor.binding import Bound, bind, find_class
from roll_executor.errors import BindingError, ClusterClosedError, ConfigError, Where
from roll_executor.handle import WorkerHandle, public
from roll_executor.host import Header, Status
from roll_executor.launching import launch, order_of
from roll_executor.mending import Initialized, mend
from roll_executor.pending import OnEnd, OpenCall, PendingResult
from roll_executor.proxy import proxy
from roll_executor.replay import Recorder, RecordError
from roll_executor.sending import loaded, send
from roll_executor.shape import Shape
from roll_executor.sizes import size_of, size_of_parts
from roll_executor.stats import MethodStats, Span, Stats
from roll_executor.stream import ResultStream
from roll_executor.tracing import CallSpan
from roll_executor.transfer import Carriage, Transfer
from roll_executor.watch import watch
from roll_executor.worker_config import WorkerConfig, restartable
from roll_executor.workers import Health, Ticket, Workers
from roll_resources import Allocation, ResourceManager

if TYPE_CHECKING:
    from roll_executor.transport import ClusterTransport

logger = logging.getLogger(__name__)

INITIALIZE = "initialize"
_EVERYWHERE = Route(dispatch_mode=Dispatch.ONE_TO_ALL, clear_cache=False)


class Cluster(Shape):
    """A group of workers for one role; every method that the worker class registers can be called on it.

    Each such call takes ``timeout_s=`` and ``blocking=``; False returns a `PendingResult`, a list of refs.

    Args:
        name: the role; it prefixes logs, names the workers and stands in every error.
        worker_cls: the worker class, a Ray actor class of it, or its dotted path.
        resource_manager: where the workers are placed; its ``runtime`` decides where they run.
        worker_config: size, devices and policies of the role.
        transfer: what carries payloads; None: the runtime's object store.

    Raises:
        WorkerClassError: if the class is none or cannot be imported.
        BindingError: if a registered method cannot be offered.
        PlanError: if the workers do not fit on the nodes.
        ReservationError: if their places are not granted in time.
        WorkerStartError: if a worker cannot be built; then nothing is left behind.

    Example:
        >>> with ResourceManager(runtime="local") as manager:
        ...     with Cluster("doubler", Doubler, manager, WorkerConfig(world_size=2)) as doubler:
        ...         doubler.double([1, 2, 3])
        [2, 4, 6]
    """

    def __init__(
        self,
        name: str,
        worker_cls: Any,  # Any: a class, a Ray actor class or a dotted path
        resource_manager: ResourceManager,
        worker_config: WorkerConfig,
        *,
        transfer: Transfer | None = None,
    ) -> None:
        if not name:
            raise ConfigError("a cluster needs a name: it stands in its workers' names, logs and errors")
        if transfer is not None and not transfer.is_open:
            raise ConfigError(f"transfer backend {transfer.name!r} is not open; use it in a `with` block")
        cls = find_class(worker_cls)
        self._methods = bind(cls, taken=RESERVED)
        self._worker_cls: type | None = cls
        self.name = name
        self.worker_config = worker_config
        self.runtime = resource_manager.runtime
        self._transfer = transfer
        order = order_of(name, cls, worker_config)  # refuses impossible settings before anything is reserved
        self._allocation: Allocation | None = resource_manager.allocate(worker_config.role_request(name))
        try:
            self._workers: Workers = launch(self.runtime, order, self._allocation)
        except BaseException:
            self._allocation.release()
            raise
        self.world_size = len(self._workers.wheres)
        self._prepare()
        self._topology = Topology.data_parallel(self.world_size)

    def _prepare(self) -> None:
        self._stats = Stats()
        self._lock = threading.RLock()
        self._initializing: OpenCall | None = None
        self.closed = False
        """Whether ``close`` has ended the workers."""
        self._suspect = False
        self._initialized: Initialized | None = None
        self._recorder: Recorder | None = None
        self._bound: dict[str, Callable[..., Any]] = {}  # Any: the user's own signatures

    # ---- what the cluster is

    @property
    def topology(self) -> Topology:
        """The coordinates of all workers: data parallel before ``initialize``, the published ones after it.

        While a non-blocking ``initialize`` is under way this waits for its end.

        Raises:
            WorkerError: if ``initialize`` failed.
            TopologyError: if the workers' coordinates do not fit together.
        """
        with self._lock:
            call, self._initializing = self._initializing, None
            if call is not None and not call.delivered:
                call.finish()  # a failure that nobody has seen surfaces here, once
            return self._topology

    @property
    def wheres(self) -> list[Where]:
        """Node and process of every worker in rank order."""
        return list(self._workers.wheres)

    @property
    def num_puts(self) -> int:
        """How many payloads have been serialised apart because several ranks share them."""
        return self._workers.num_puts

    @property
    def workers(self) -> list[WorkerHandle]:
        """One handle per worker, for calls on one rank: ``cluster.workers[1].method.remote(...)``."""

        return [WorkerHandle(rank, self._send_to) for rank in range(self.world_size)]

    @property
    def methods(self) -> list[str]:
        """Names of the methods that the cluster offers."""
        return sorted(self._methods)

    def health(self) -> list[Health]:
        """Return how every worker is, whatever it is doing; takes about a second when one does not answer."""
        self._check_open()
        return self._workers.health()

    def stats(self) -> dict[str, MethodStats]:
        """Return counts and seconds by method of the calls made through this object."""
        return self._stats.read()

    def spans(self) -> list[Span]:
        """Return when the last calls made through this object ran, the oldest first."""
        return self._stats.spans()

    # ---- calls

    def __getattr__(self, name: str) -> Any:  # Any: the user's own signatures
        methods = self.__dict__.get("_methods", {})
        if name not in methods:
            offered = ", ".join(sorted(methods)) or "none"
            raise AttributeError(
                f"Cluster {self.__dict__.get('name', '?')!r} has no method {name!r}; it offers: {offered}"
            )
        found = self._bound.get(name)
        if found is None:
            found = self._bound[name] = proxy(self.name, methods[name], self.call)
        return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._methods})

    def call(
        self,
        method: str,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        blocking: bool = True,
        timeout_s: float | None = None,
    ) -> Any:  # Any: result of the user's own method
        """Call a registered method by name; ``cluster.method(...)`` is the short form."""
        if method not in self._methods:
            raise BindingError(f"{self.name} has no registered method {method!r}; it has {self.methods}")
        bound = self._methods[method]
        given = kwargs or {}
        bound.check(args, given, cluster=self.name)
        if bound.kind == "generator":
            return self._stream(bound, args, given, timeout_s=self._limit(bound.route, timeout_s))
        call = self._run(method, bound.route, args, given, blocking=blocking, timeout_s=timeout_s)
        return call.result() if blocking else PendingResult(call)

    def execute_all_async(
        self, method: str, *args: Any, **kwargs: Any
    ) -> PendingResult:  # Any: the user's method
        """Send the same call of any public method to every rank; return the references."""
        return PendingResult(self._run(public(method), _EVERYWHERE, args, kwargs, blocking=False))

    def execute_all_sync(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:  # Any: the user's method
        """Run the same call of any public method on every rank; return the results in rank order."""
        return self._run(public(method), _EVERYWHERE, args, kwargs, blocking=True).values()

    execute_all = execute_all_async

    def execute_rank_zero_async(self, method: str, *args: Any, **kwargs: Any) -> Any:  # Any: a reference
        """Send a call of any public method to rank 0; return the reference of its result."""
        return self._submit_to(0, public(method), args, kwargs).result

    def execute_rank_zero_sync(self, method: str, *args: Any, **kwargs: Any) -> Any:  # Any: the user's method
        """Run a call of any public method on rank 0; return its result."""
        ticket = self._submit_to(0, public(method), args, kwargs)
        outputs, _ = self._workers.gather([ticket], [0], self.worker_config.timeout_s)
        return outputs[0]

    execute_rank_zero = execute_rank_zero_async

    def _send_to(self, rank: int, method: str, args: Any, kwargs: Any) -> Any:  # Any: see WorkerHandle
        return self._submit_to(rank, method, args, kwargs).result

    def _submit_to(self, rank: int, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ticket:
        self._check_open()
        return self._workers.submit(rank, Header(method=method), args, kwargs)

    def _run(
        self,
        method: str,
        route: Route,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        blocking: bool,
        timeout_s: float | None = None,
    ) -> OpenCall:
        self._check_open()
        self._mend()
        plan = plan_call(route, self.topology, args, kwargs)
        span = CallSpan(self.name, method, num_ranks=self.world_size)
        carriage = Carriage(self._transfer) if self._transfer else None
        header = Header.of(method, route, context=span.context, carriage=carriage)
        self._write_down(header, plan)
        call = OpenCall(
            self._workers,
            plan,
            send(self._workers, plan.parts, header, whole=plan.collecting_ranks if blocking else ()),
            method=method,
            timeout_s=self._limit(route, timeout_s),
            kill_peers_after_s=self.worker_config.kill_peers_after_s,
            on_end=_ending(self, method, span, sent=size_of_parts(plan.parts)),
            carriage=carriage,
        )
        if method == INITIALIZE:
            with self._lock:
                self._initializing = call
                self._initialized = Initialized(route, args, kwargs)
        return call

    @contextmanager
    def record(self, folder: str | Path) -> Iterator[None]:
        """Write down every call made inside the block, so that ``replay`` can run one rank of it again.

        Each call then costs one more message per rank, which asks for its random state.

        Args:
            folder: where each call gets a folder of its own.
        """
        if self._worker_cls is None:
            raise RecordError(f"this copy of cluster {self.name!r} cannot record; record on the original")
        self._recorder = Recorder(
            Path(folder), cluster=self.name, worker_cls=self._worker_cls, config=self.worker_config
        )
        try:
            yield
        finally:
            self._recorder = None

    def _write_down(self, header: Header, plan: Call) -> None:
        if self._recorder is not None:
            initialized = self._initialized.parts(self._topology) if self._initialized else None
            self._recorder.write(self._workers, header, plan.parts, initialized)

    def _mend(self) -> None:
        """Build dead workers anew and initialize them, when the role allows it."""
        with self._lock:
            if not self._suspect:
                return
            self._suspect = False
            if self._allocation is None or not restartable(self.worker_config):
                return
            timeout_s = self.worker_config.start_timeout_s
            mend(self._workers, self._topology, self._initialized, timeout_s=timeout_s)

    def _limit(self, route: Route, timeout_s: float | None) -> float | None:
        limits = (timeout_s, route.timeout_s, self.worker_config.timeout_s)
        return next((limit for limit in limits if limit is not None), None)

    def _stream(
        self, bound: Bound, args: tuple[Any, ...], kwargs: dict[str, Any], *, timeout_s: float | None
    ) -> ResultStream:
        self._check_open()
        plan = plan_call(bound.route, self.topology, args, kwargs)
        carriage = Carriage(self._transfer, results=False) if self._transfer else None
        header = Header.of(bound.name, bound.route, carriage=carriage)
        self._write_down(header, plan)
        sources: dict[int, Iterator[Any]] = {}
        for rank, part in enumerate(loaded(plan.parts, carriage)):
            if part is not None:
                sources[rank] = self._workers.stream(rank, header, part[0], dict(part[1]))
        return ResultStream(
            self._workers,
            sources,
            plan.collecting_ranks,
            method=bound.name,
            timeout_s=timeout_s,
            kill_peers_after_s=self.worker_config.kill_peers_after_s,
            runtime=self.runtime,
            carriage=carriage,
        )

    def transport(self) -> "ClusterTransport":
        """Return what carries one message to every worker of this cluster; other workers may receive it."""
        from roll_executor.transport import ClusterTransport

        return ClusterTransport(self._workers, self.world_size)

    # ---- the end

    def _check_open(self) -> None:
        if self.closed:
            raise ClusterClosedError(f"cluster {self.name!r} is closed; build a new one")

    def close(self) -> None:
        """End all workers and give their places back; twice does nothing, nor does a copy elsewhere."""
        if self.closed:
            return
        self.closed = True
        allocation, self._allocation = self._allocation, None
        watch.forget(self._workers)
        if allocation is not None:
            self._workers.close()
            allocation.release()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:  # Any: what the pickle protocol asks for
        if self.runtime == "local":
            raise TypeError(f"cluster {self.name!r} runs in this process and cannot be sent to another")
        self.topology  # noqa: B018  # the copy must know the real one: an initialize under way ends first
        return _restore, ({name: self.__dict__[name] for name in COPIED},)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.world_size} worker(s) on {self.runtime}"
        return f"<Cluster {self.name!r}: {state}>"


RESERVED = frozenset(dir(Cluster)) | {"name", "worker_config", "runtime", "world_size"}
"""Names that a registered method cannot have."""


COPIED = "name", "worker_config", "runtime", "world_size", "_methods", "_workers", "_topology", "_transfer"


def _restore(state: dict[str, Any]) -> Cluster:  # Any: the values of its attributes
    cluster = Cluster.__new__(Cluster)
    vars(cluster).update(state)
    cluster._worker_cls = None
    cluster._allocation = None
    cluster._prepare()
    return cluster


def _ending(cluster: Cluster, method: str, span: CallSpan, *, sent: int) -> OnEnd:
    watched = weakref.ref(cluster)

    def end(statuses: dict[int, Status] | None, seconds: float, outputs: object) -> None:
        span.end(failed=statuses is None)
        owner = watched()
        if owner is None:
            return
        owner._stats.add(method, statuses, seconds, sent=sent, received=size_of(outputs))
        if statuses is None:
            owner._suspect = True
        if method == INITIALIZE and statuses is not None:
            told = [status.rank_info for status in statuses.values()]
            owner._topology = Topology([info for info in told if info is not None])

    return end
