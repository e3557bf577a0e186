"""Starting the workers of one cluster on Ray, and starting them again."""

import os
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ray
from ray import cloudpickle

from roll_executor.errors import ExecutorError, Where, WorkerDiedError, WorkerStartError
from roll_executor.importable import modules_to_ship
from roll_executor.on_ray.actor import AsyncActor, Blueprint, SyncActor
from roll_executor.on_ray.facts import Facts
from roll_executor.on_ray.failures import translate
from roll_executor.on_ray.logs import last_lines
from roll_executor.on_ray.workers import RayWorkers
from roll_executor.place import WorkerPlace
from roll_executor.workers import Launch
from roll_resources.on_ray import RayAllocation, RaySlot

_sync_actor = ray.remote(SyncActor)
_async_actor = ray.remote(AsyncActor)


def launch(order: Launch) -> RayWorkers:
    """Start all workers of a cluster at once and return them when all are built.

    Raises:
        WorkerStartError: if one cannot be started or built; then none is left.
    """
    starter = Starter(order)
    try:
        starter.create()
        everyone = range(len(starter.actors))
        starter.facts = starter.prepare(everyone)
        starter.build(everyone)
    except BaseException:
        for actor in starter.actors:
            ray.kill(actor, no_restart=True)
        raise
    return RayWorkers(
        starter.actors, facts=starter.facts, name=order.name, token=starter.token, starter=starter
    )


class Starter:
    """Starts the actors of one cluster, and builds workers in them: in two waves, all ranks at a time."""

    def __init__(self, order: Launch) -> None:
        assert isinstance(order.allocation, RayAllocation), "the Ray runtime is given places on Ray"
        self.order = order
        self.slots: Sequence[RaySlot] = order.allocation.slots
        self.namespace = order.allocation.namespace
        self.token = secrets.token_hex(16)
        self.actors: list[Any] = []  # Any: see RayWorkers
        self.facts: list[Facts] = []
        for module in modules_to_ship(order.worker_cls):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # Ray leaves it untyped
        parts = Blueprint(worker_cls=order.worker_cls, config=order.config)
        self.blueprint = ray.put(cloudpickle.dumps(parts))  # type: ignore[no-untyped-call]  # Ray leaves it untyped

    def create(self) -> None:
        """Ask Ray for one actor per slot."""
        for slot in self.slots:
            self.actors.append(self._create(slot))  # what is there before a failure must be known

    def _create(self, slot: RaySlot) -> Any:  # Any: see RayWorkers
        name = f"{self.order.name}-{slot.placement.rank}"
        actor_class = _async_actor if self.order.is_async else _sync_actor
        options = slot.actor_options() | {
            "name": name,
            "namespace": self.namespace,
            "max_concurrency": self.order.max_concurrency,
            "max_restarts": self.order.max_restarts,
        }
        try:
            return actor_class.options(**options).remote(name, self.token)
        except ValueError as clash:
            raise ExecutorError(
                f"a worker named {name!r} exists already in this ResourceManager's namespace; "
                "close the other cluster of this name first, or give this one another name"
            ) from clash

    def prepare(self, ranks: Sequence[int]) -> list[Facts]:
        """Return what the actors tell of themselves, once they are up."""
        calls = [self.actors[rank].prepare.remote(rank == 0) for rank in ranks]
        found: list[Facts] = self._get(calls, ranks)
        return found

    def prepare_again(self, ranks: Sequence[int]) -> list[Facts]:
        """Return what the actors tell of themselves, waiting for those that Ray is starting again."""
        deadline = time.monotonic() + self.order.start_timeout_s
        while True:
            calls = [self.actors[rank].prepare.remote(rank == 0) for rank in ranks]
            try:
                return ray.get(calls, timeout=self.order.start_timeout_s)
            except ray.exceptions.ActorUnavailableError:
                self._check_nodes(ranks)
                if time.monotonic() > deadline:
                    raise self._first_error(calls, ranks, TimeoutError("not back in time")) from None
                time.sleep(0.2)
            except (ray.exceptions.RayError, TimeoutError) as error:
                raise self._first_error(calls, ranks, error) from None

    def _check_nodes(self, ranks: Sequence[int]) -> None:
        """Raise when a worker waits for a node that has left: places are pinned to nodes."""
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}  # type: ignore[no-untyped-call]  # Ray's own
        for rank in ranks:
            if self.facts[rank].node_id not in alive:
                where = self._where(rank)
                raise WorkerDiedError(
                    f"{where} stood on a node that has left the cluster, so it cannot be started again; "
                    "build the cluster again on the nodes that are left",
                    where=where,
                )

    def build(self, ranks: Sequence[int], *, cold: bool = False) -> None:
        """Build the workers in these actors; ``facts`` must be there."""
        calls = []
        for rank in ranks:
            slot = self.slots[rank]
            place = WorkerPlace(
                cluster_name=self.order.name,
                rank=rank,
                world_size=len(self.actors),
                local_rank=slot.placement.local_rank,
                master_addr=self.facts[0].node_ip,
                master_port=self.facts[0].master_port,
                device_ids=tuple(device.global_id for device in slot.placement.devices),
                node=self.facts[rank].node_ip,
            )
            call = self.actors[rank].build.remote(
                self.blueprint,
                place,
                self.order.environment,
                slot.visible_ids,
                slot.accelerator,
                self.order.cold_until if cold else None,
                tuple(folder or os.getcwd() for folder in sys.path),
            )
            calls.append(call)
        self._get(calls, ranks)

    def _get(self, calls: list[Any], ranks: Sequence[int]) -> list[Any]:  # Any: references and their values
        try:
            found: list[Any] = ray.get(calls, timeout=self.order.start_timeout_s)
        except ray.exceptions.GetTimeoutError:
            done, _ = ray.wait(calls, num_returns=len(calls), timeout=0, fetch_local=False)
            late = [rank for rank, call in zip(ranks, calls, strict=True) if call not in set(done)]
            raise WorkerStartError(
                f"ranks {late} of {self.order.name} were not started within {self.order.start_timeout_s:g} s "
                "(start_timeout_s); look for a constructor that waits, or for a node without free "
                "memory or CPU",
                where=self._where(late[0] if late else ranks[0]),
            ) from None
        except ray.exceptions.RayError as error:
            raise self._first_error(calls, ranks, error) from None
        return found

    def _first_error(self, calls: list[Any], ranks: Sequence[int], error: BaseException) -> BaseException:
        done, _ = ray.wait(calls, num_returns=len(calls), timeout=0, fetch_local=False)
        for rank, call in zip(ranks, calls, strict=True):
            if call in set(done):
                try:
                    ray.get(call)
                except ray.exceptions.RayError as own:
                    found = translate(own, self._where(rank))
                    return found.with_notes(*(last_lines(self.facts[rank]) if self.facts else ()))
        return translate(error, self._where(ranks[0]))

    def _where(self, rank: int) -> Where:
        where = Where(cluster=self.order.name, rank=rank, method="__init__")
        if self.facts:
            where = replace(where, node=self.facts[rank].node_ip, pid=self.facts[rank].pid)
        return where
