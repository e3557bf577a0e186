"""Several clusters at once."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from roll_executor.cluster import Cluster
from roll_executor.transfer import Transfer
from roll_executor.worker_config import WorkerConfig
from roll_resources import ResourceManager


def create_clusters(
    roles: Mapping[str, tuple[str, Any, WorkerConfig]],  # Any: a class, a Ray actor class or a dotted path
    resource_manager: ResourceManager,
    *,
    transfer: Transfer | None = None,
) -> dict[str, Cluster]:
    """Return several clusters, created at the same time; when one cannot be, the others are closed again.

    Args:
        roles: by key, the name, class and configuration of each.
        resource_manager: where all of them are placed.
        transfer: see ``Cluster``.

    Raises:
        ExecutorError, ResourceError: the first failure, in the order of ``roles``.
    """
    if not roles:
        return {}
    resource_manager.start()
    resource_manager.plan([config.role_request(name) for name, _, config in roles.values()])
    with ThreadPoolExecutor(max_workers=len(roles), thread_name_prefix="roll-create") as pool:
        futures = {
            key: pool.submit(Cluster, name, worker_cls, resource_manager, config, transfer=transfer)
            for key, (name, worker_cls, config) in roles.items()
        }
    failures = [error for future in futures.values() if (error := future.exception()) is not None]
    if failures:
        for future in futures.values():
            if future.exception() is None:
                future.result().close()
        raise failures[0]
    return {key: future.result() for key, future in futures.items()}
