"""From a role's configuration to running workers, in whichever runtime."""

from dataclasses import replace

from roll_executor.binding import has_async_methods
from roll_executor.errors import ConfigError
from roll_executor.worker_config import WorkerConfig, environment_of, restartable
from roll_executor.workers import Launch, Workers
from roll_resources import Allocation

ASYNC_CONCURRENCY = 1000
"""Calls that a worker with coroutine methods runs at a time unless its role says otherwise."""


def order_of(name: str, worker_cls: type, config: WorkerConfig) -> Launch:
    """Return the order to start the workers of a role; their places are still open.

    Raises:
        ConfigError: if a setting of the role is impossible.
    """
    for limit in ("max_concurrency", "timeout_s", "start_timeout_s", "kill_peers_after_s"):
        value = getattr(config, limit)
        if value is not None and value < (1 if limit == "max_concurrency" else 0):
            raise ConfigError(f"{name}.{limit} is {value}; give a positive number, or leave it out")
    is_async = has_async_methods(worker_cls)
    return Launch(
        name=name,
        worker_cls=worker_cls,
        config=config,
        allocation=None,
        is_async=is_async,
        max_concurrency=config.max_concurrency or (ASYNC_CONCURRENCY if is_async else 1),
        environment=environment_of(config),
        start_timeout_s=config.start_timeout_s,
        max_restarts=config.max_restarts if restartable(config) else 0,
        cold_until=config.cold_until,
    )


def launch(runtime: str, order: Launch, allocation: Allocation) -> Workers:
    """Start the workers in their places and return them when all are built."""
    placed = replace(order, allocation=allocation)
    if runtime == "local":
        from roll_executor.local import launch as launch_here

        return launch_here(placed)
    from roll_executor.on_ray import launch as launch_on_ray

    return launch_on_ray(placed)
