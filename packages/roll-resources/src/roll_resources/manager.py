"""The manager: it plans roles on nodes and, on Ray, reserves what it has planned."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType, TracebackType
from typing import Literal, Protocol

from roll_resources.errors import ManagerClosedError, PlanError, RayMissingError
from roll_resources.plan import Placement, Plan, plan
from roll_resources.pool import DevicePool
from roll_resources.request import RoleRequest

logger = logging.getLogger(__name__)

Runtime = Literal["ray", "local"]


class Allocation(Protocol):
    """Places that one role holds until it releases them."""

    @property
    def placements(self) -> tuple[Placement, ...]:
        """One place per worker, in rank order."""
        ...

    def release(self) -> None:
        """Give the places back; doing it twice does nothing."""
        ...


class Backend(Protocol):
    """What reserves places; the one on Ray lives in ``on_ray``."""

    @property
    def pool(self) -> DevicePool:
        """The nodes and devices that the backend found."""
        ...

    def allocate(self, placements: tuple[Placement, ...]) -> Allocation:
        """Reserve the places of one role."""
        ...

    def run_on_nodes(self, function: Callable[..., object], *args: object) -> list[object]:
        """Run a function once on each node."""
        ...

    def ended_daemons(self) -> list[str]:
        """Return the runtime's own processes that have ended."""
        ...

    def close(self) -> None:
        """Give everything back; doing it twice does nothing."""
        ...


class LocalAllocation:
    """Places in this process: there is nothing to give back."""

    def __init__(self, placements: tuple[Placement, ...]) -> None:
        self.placements = placements

    def release(self) -> None:
        """Do nothing: planning reserves nothing."""


class ResourceManager:
    """The nodes and devices of one run: plans every role and reserves its places, on Ray or nowhere.

    Nothing is started before the first role is allocated (or ``start`` is called).

    Args:
        num_nodes: nodes to use; None: every node that has the devices (one, in the local runtime).
        num_gpus_per_node: devices to use on each node; 0 or None: CPU only.
        runtime: ``"ray"`` reserves on a Ray cluster, ``"local"`` only plans, for workers in this process.
        address: a running Ray to join; None: the one this process is connected to, else the one that
            ``RAY_ADDRESS`` names, else a new one on this machine.
        num_cpus_per_node: CPUs to reserve beside the devices of each node, for the workers on them;
            None: half of the node's, at least one. CPU workers reserve theirs apart.
        namespace: Ray namespace of the actors; None: one that nobody else has.
        timeout_s: longest wait for Ray to start and for a reservation to be granted.
        runtime_env: code and packages that the workers' processes are given, in Ray's own words
            (``working_dir``, ``py_modules``, ``pip``, ``env_vars``); folders of this machine are uploaded.
            None: what the driver has.
        name: under a name, what is reserved outlives this process on a Ray that does, too: a later manager of
            this name finds it again, one at a time, and ``release`` gives it back.

    Raises:
        PlanError: if a count is impossible.

    Example:
        >>> with ResourceManager(num_nodes=1, num_gpus_per_node=8, runtime="local") as manager:
        ...     len(manager.plan([RoleRequest(name="train", device_mapping="0-7")])["train"])
        8
    """

    def __init__(
        self,
        num_nodes: int | None = None,
        num_gpus_per_node: int | None = None,
        *,
        runtime: Runtime = "ray",
        address: str | None = None,
        num_cpus_per_node: float | None = None,
        namespace: str | None = None,
        timeout_s: float = 120.0,
        runtime_env: Mapping[str, object] | None = None,
        name: str | None = None,
    ) -> None:
        if num_nodes is not None and num_nodes < 1:
            raise PlanError(f"num_nodes is {num_nodes}; a run needs at least one node")
        if num_gpus_per_node is not None and num_gpus_per_node < 0:
            raise PlanError(f"num_gpus_per_node is {num_gpus_per_node}; give 0 for a run on the CPU, or more")
        if runtime not in ("ray", "local"):
            raise PlanError(f"runtime is {runtime!r}; choose 'ray' or 'local'")
        self.runtime: Runtime = runtime
        self.num_nodes = num_nodes
        self.num_gpus_per_node = num_gpus_per_node or 0
        self.num_cpus_per_node = num_cpus_per_node
        self.address = address
        self.namespace = namespace
        self.timeout_s = timeout_s
        self.runtime_env = runtime_env
        self.name = name
        self._backend: Backend | None = None
        self._closed = False
        self._lock = threading.Lock()

    @property
    def pool(self) -> DevicePool:
        """The nodes and devices that roles are planned on; those of the arguments until Ray was asked."""
        if self._backend is not None:
            return self._backend.pool
        return DevicePool.uniform(nodes=self.num_nodes or 1, gpus_per_node=self.num_gpus_per_node)

    def plan(self, requests: Iterable[RoleRequest]) -> Plan:
        """Return where every worker of these roles would stand; start and reserve nothing.

        Raises:
            PlanError: if any role does not fit.
        """
        return plan(requests, self.pool)

    def start(self) -> "ResourceManager":
        """Connect to Ray, or start it, find the nodes and return the manager; the local runtime just returns.

        Raises:
            ReservationError: if Ray is missing or the nodes are not there within ``timeout_s``.
            ManagerClosedError: if the manager was closed.
        """
        with self._lock:  # clusters are created in threads, and Ray is started once
            if self._closed:
                raise ManagerClosedError("this ResourceManager is closed; make a new one")
            if self._backend is None and self.runtime == "ray":
                self._backend = self._start_on_ray()
        return self

    def _start_on_ray(self) -> Backend:
        backend: Backend = _on_ray().RayBackend.start(
            num_nodes=self.num_nodes,
            gpus_per_node=self.num_gpus_per_node,
            cpus_per_node=self.num_cpus_per_node,
            address=self.address,
            namespace=self.namespace,
            timeout_s=self.timeout_s,
            runtime_env=self.runtime_env,
            name=self.name,
        )
        return backend

    def allocate(self, request: RoleRequest) -> Allocation:
        """Reserve the places of one role.

        Raises:
            PlanError: if it does not fit on the nodes; then nothing has been reserved.
            ReservationError: if Ray does not grant the places in ``timeout_s``; then nothing stays behind.
            ManagerClosedError: if the manager was closed.
        """
        if self.num_nodes is not None or self._backend is not None:
            self.plan([request])  # says what is wrong before anything is started
        self.start()
        placements = self.plan([request])[request.name]
        if self._backend is None:
            return LocalAllocation(placements)
        return self._backend.allocate(placements)

    def run_on_nodes(self, function: Callable[..., object], *args: object) -> list[object]:
        """Run a function once on each node of the run, at the same time; return the results in node order.

        It is how a model is prepared once per node before the workers there open it; in the local runtime the
        function runs once, here.

        Example:
            >>> ResourceManager(runtime="local").run_on_nodes(abs, -3)
            [3]
        """
        self.start()
        return [function(*args)] if self._backend is None else self._backend.run_on_nodes(function, *args)

    def ended_daemons(self) -> list[str]:
        """Return the processes of Ray that have ended, such as this node's raylet: no call comes back then.

        Of a Ray that was started here it is known at once. Of one that was joined it is known within three
        seconds for the raylet of this node, and for a gcs_server that keeps what it knows in memory. One that
        is slow has not ended, and of one whose machine does not answer nothing is known: Ray finds that.
        """
        backend = self._backend
        return backend.ended_daemons() if backend is not None else []

    def close(self) -> None:
        """Give back what was reserved, and stop Ray if this manager started it; twice does nothing.

        What stands under a name stays: see ``release``.
        """
        with self._lock:
            self._closed = True
            backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()

    def release(self) -> int:
        """Give back all that stands under the manager's name, also from earlier processes, and close.

        Workers that still stand there are ended.

        Returns:
            How many reservations there were; 0 without a name, when ``close`` has given all back.
        """
        count = 0
        if self.runtime == "ray" and self.name is not None:
            count = int(_on_ray().release_groups(self.name, address=self.address))
        self.close()
        return count

    def __enter__(self) -> "ResourceManager":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"ResourceManager(num_nodes={self.num_nodes}, num_gpus_per_node={self.num_gpus_per_node}, "
            f"runtime={self.runtime!r})"
        )


def _on_ray() -> ModuleType:
    """Return the folder that knows Ray, or say how to install it."""
    try:
        from roll_resources import on_ray
    except ModuleNotFoundError as missing:
        if (missing.name or "ray").partition(".")[0] != "ray":
            raise
        raise RayMissingError(
            "the runtime 'ray' needs Ray: pip install 'roll-executor[ray]', or use runtime='local'"
        ) from missing
    return on_ray
