"""Starting the workers of one cluster on Ray."""

import secrets
from dataclasses import replace
from typing import Any

import ray
from ray import cloudpickle

from roll_executor.errors import ExecutorError, Where, WorkerStartError
from roll_executor.importable import modules_to_ship
from roll_executor.on_ray.actor import AsyncActor, Blueprint, Facts, SyncActor
from roll_executor.on_ray.failures import translate
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
    allocation = order.allocation
    assert isinstance(allocation, RayAllocation), "the Ray runtime is given places on Ray"
    token = secrets.token_hex(16)
    actors: list[Any] = []  # Any: see RayWorkers
    try:
        for slot in allocation.slots:  # what was created before a failure must be known
            actors.append(_create(order, slot, allocation.namespace, token))  # noqa: PERF401  # as above
        facts = _prepare(order, actors)
        _build(order, allocation, actors, facts)
    except BaseException:
        for actor in actors:
            ray.kill(actor, no_restart=True)
        raise
    wheres = [replace(_where(order, rank, fact), method="") for rank, fact in enumerate(facts)]
    return RayWorkers(actors, wheres=wheres, controls=[fact.control for fact in facts], token=token)


def _create(order: Launch, slot: RaySlot, namespace: str, token: str) -> Any:  # Any: see RayWorkers
    name = f"{order.name}-{slot.placement.rank}"
    actor_class = _async_actor if order.is_async else _sync_actor
    try:
        return actor_class.options(
            name=name,
            namespace=namespace,
            max_concurrency=order.max_concurrency,
            max_restarts=0,
            **slot.actor_options(),
        ).remote(name, token)
    except ValueError as clash:
        raise ExecutorError(
            f"a worker named {name!r} exists already in this ResourceManager's namespace; "
            "close the other cluster of this name first, or give this one another name"
        ) from clash


def _prepare(order: Launch, actors: list[Any]) -> list[Facts]:  # Any: see RayWorkers
    calls = [actor.prepare.remote(rank == 0) for rank, actor in enumerate(actors)]
    facts: list[Facts] = _get(order, calls, [None] * len(calls))
    return facts


def _build(
    order: Launch, allocation: RayAllocation, actors: list[Any], facts: list[Facts]
) -> None:  # Any: see RayWorkers
    for module in modules_to_ship(order.worker_cls):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # Ray leaves it untyped
    parts = Blueprint(worker_cls=order.worker_cls, config=order.config)
    blueprint = ray.put(cloudpickle.dumps(parts))  # type: ignore[no-untyped-call]  # Ray leaves it untyped
    calls = []
    for slot, actor, fact in zip(allocation.slots, actors, facts, strict=True):
        placement = slot.placement
        place = WorkerPlace(
            cluster_name=order.name,
            rank=placement.rank,
            world_size=len(actors),
            local_rank=placement.local_rank,
            master_addr=facts[0].node_ip,
            master_port=facts[0].master_port,
            device_ids=tuple(device.global_id for device in placement.devices),
            node=fact.node_ip,
        )
        calls.append(
            actor.build.remote(blueprint, place, order.environment, slot.visible_ids, slot.accelerator)
        )
    _get(order, calls, list(facts))


def _get(order: Launch, calls: list[Any], facts: list[Any]) -> list[Any]:  # Any: references and their values
    try:
        found: list[Any] = ray.get(calls, timeout=order.start_timeout_s)
    except ray.exceptions.GetTimeoutError:
        done, _ = ray.wait(calls, num_returns=len(calls), timeout=0, fetch_local=False)
        late = [rank for rank, call in enumerate(calls) if call not in set(done)]
        where = _where(order, late[0] if late else 0, facts[late[0]] if late else None)
        raise WorkerStartError(
            f"ranks {late} of {order.name} were not started within {order.start_timeout_s:g} s "
            "(start_timeout_s of the role); look for a constructor that waits, or for a node without free "
            "memory or CPU",
            where=where,
        ) from None
    except ray.exceptions.RayError as error:
        done, _ = ray.wait(calls, num_returns=len(calls), timeout=0, fetch_local=False)
        for rank, call in enumerate(calls):
            if call in set(done):
                try:
                    ray.get(call)
                except ray.exceptions.RayError as own:
                    raise translate(own, _where(order, rank, facts[rank])) from own
        raise translate(error, _where(order, 0, facts[0])) from error
    return found


def _where(order: Launch, rank: int, facts: Facts | None) -> Where:
    return Where(
        cluster=order.name,
        rank=rank,
        method="__init__",
        node=facts.node_ip if facts else "",
        pid=facts.pid if facts else 0,
    )
