"""The Ray actor that holds one worker."""

import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray import cloudpickle

from roll_executor.control import ControlServer
from roll_executor.errors import Where, WorkerDiedError, WorkerStartError
from roll_executor.host import Header, Host, Wire
from roll_executor.on_ray.facts import Facts, birth_of, own_log_files
from roll_executor.place import WorkerPlace
from roll_executor.rendezvous import HeldPort
from roll_resources import PLATFORMS, current_platform


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """What a worker is built from, pickled apart: the environment is set before anything is imported."""

    worker_cls: type
    config: Any  # Any: each role's own configuration class


class Actor:
    """An empty process that becomes a worker: ``prepare`` tells where it is, ``build`` makes the worker."""

    def __init__(self, name: str, token: str) -> None:
        self._name = name
        self._token = token
        self._host: Host | None = None
        self._held: HeldPort | None = None
        self._control: ControlServer | None = None

    def __repr__(self) -> str:
        return self._name

    def prepare(self, hold_port: bool) -> Facts:
        """Open the control channel and, on rank 0, hold the port on which the ranks will meet."""
        ip: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]  # Ray leaves it untyped
        if self._control is None:
            self._control = ControlServer(ip, token=self._token, owner=lambda: self._host)
        if hold_port and self._held is None:
            self._held = HeldPort(ip)
        return Facts(
            node_ip=ip,
            node_id=ray.get_runtime_context().get_node_id(),
            pid=os.getpid(),
            birth=birth_of(os.getpid()),
            log_files=own_log_files(),
            built=self._host is not None,
            control=self._control.address,
            master_port=self._held.port if self._held else 0,
        )

    def build(
        self,
        blueprint: bytes,
        place: WorkerPlace,
        environment: Mapping[str, str],
        visible_ids: tuple[int, ...],
        accelerator: str | None,
        cold_until: str | None,
        search_path: tuple[str, ...],
    ) -> None:
        """Set the environment, import the worker's class and build the worker."""
        # Ray gives its workers the folder of the driver's script, but not what the driver added to its path.
        sys.path += [folder for folder in search_path if folder not in sys.path and os.path.isdir(folder)]
        _set_environment(place, environment, visible_ids, accelerator)
        try:
            parts: Blueprint = cloudpickle.loads(blueprint)
        except Exception as error:
            where = Where(cluster=place.cluster_name, rank=place.rank, node=place.node, pid=os.getpid())
            raise WorkerStartError(
                f"{where} cannot load its class or configuration: {type(error).__name__}: {error}; "
                "make the module importable on every node, or ship it with Ray's runtime_env",
                where=where,
            ) from error
        self._host = Host(
            lambda: parts.worker_cls(parts.config), place=place, pid=os.getpid(), cold_until=cold_until
        )

    @property
    def host(self) -> Host:
        """The built worker's host.

        Raises:
            WorkerDiedError: if this process has been started again and holds no worker yet.
        """
        if self._host is None:
            cluster, _, rank = self._name.rpartition("-")
            where = Where(cluster=cluster, rank=int(rank), node="", pid=os.getpid())
            raise WorkerDiedError(f"{where} was restarted and is not built again yet", where=where)
        return self._host


class SyncActor(Actor):
    """Runs one call at a time in the main thread (more with ``max_concurrency``)."""

    def call(self, header: bytes, /, *args: Any, **kwargs: Any) -> tuple[Any, Wire]:  # Any: the user's method
        """Run one registered method."""
        result, status = self.host.call(Header.from_wire(header), args, kwargs)
        return result, status.wire()

    def call_whole(self, header: bytes, /, *args: Any, **kwargs: Any) -> list[Any]:  # Any: the user's method
        """Run one registered method; one answer carries result and status."""
        return list(self.call(header, *args, **kwargs))

    def stream(self, header: bytes, /, *args: Any, **kwargs: Any) -> Iterator[Any]:  # Any: the user's method
        """Run one generator method."""
        # Not "yield from": Ray sends values into generators, which a user's plain iterator cannot take.
        for item in self.host.stream(Header.from_wire(header), args, kwargs):  # noqa: UP028
            yield item


class AsyncActor(Actor):
    """Runs calls as coroutines of one event loop."""

    async def call(
        self, header: bytes, /, *args: Any, **kwargs: Any
    ) -> tuple[Any, Wire]:  # Any: the user's method
        """Run one registered method."""
        result, status = await self.host.acall(Header.from_wire(header), args, kwargs)
        return result, status.wire()

    async def call_whole(self, header: bytes, /, *args: Any, **kwargs: Any) -> list[Any]:  # Any: as above
        """Run one registered method; one answer carries result and status."""
        return list(await self.call(header, *args, **kwargs))

    async def stream(
        self, header: bytes, /, *args: Any, **kwargs: Any
    ) -> AsyncIterator[Any]:  # Any: as above
        """Run one generator method."""
        async for item in self.host.astream(Header.from_wire(header), args, kwargs):
            yield item


def _set_environment(
    place: WorkerPlace, environment: Mapping[str, str], visible_ids: tuple[int, ...], accelerator: str | None
) -> None:
    chosen = dict(place.environment())
    if not place.device_ids:
        # Many CPU workers share a machine: one thread each, unless the user says otherwise.
        chosen |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        current_platform.use("cpu")
    else:
        platform = current_platform.get()
        if platform.ray_resource != accelerator:
            platform = next(entry for entry in PLATFORMS.values() if entry.ray_resource == accelerator)
        chosen |= platform.environment(visible_ids)
    os.environ.update(chosen | dict(environment))
    # The interpreter has read PYTHONPATH already: what the role adds to it counts from here on.
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [folder for folder in folders if folder and folder not in sys.path]
    if "torch" in sys.modules and "OMP_NUM_THREADS" in chosen:
        sys.modules["torch"].set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
