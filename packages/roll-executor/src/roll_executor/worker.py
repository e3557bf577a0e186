"""The base class of every worker: what it is told, and nothing that it computes."""

import logging
from typing import Any

from roll_dispatch import RankInfo
from roll_executor.place import WorkerPlace, current_place
from roll_resources import current_platform


class Worker:
    """One worker of a role. Subclasses add methods, marked with ``@register``, that the cluster may call.

    Args:
        worker_config: the configuration of the role.

    Example:
        >>> class Doubler(Worker):
        ...     @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
        ...     def double(self, rows: list[int]) -> list[int]:
        ...         return [2 * row for row in rows]
    """

    def __init__(self, worker_config: Any) -> None:  # Any: each role's own configuration class
        place = current_place()
        self._place: WorkerPlace = place
        self.worker_config = worker_config
        self.pipeline_config: Any = None  # Any: each pipeline's own configuration class
        self.rank = place.rank
        self.world_size = place.world_size
        self.local_rank = place.local_rank
        self.cluster_name = place.cluster_name
        self.worker_name = place.worker_name
        self.master_addr = place.master_addr
        self.master_port = place.master_port
        self.node = place.node
        self.device_ids = place.device_ids
        self.rank_info = RankInfo.data_parallel(rank=place.rank, world_size=place.world_size)
        """Coordinates: pure data parallel until a strategy publishes the real ones during ``initialize``."""
        self.device_type = current_platform.device_type if place.device_ids else "cpu"
        self.collective_backend = current_platform.collective_backend if self.device_type != "cpu" else "gloo"
        self.logger = logging.getLogger(f"roll.worker.{place.worker_name}")

    def initialize(self, pipeline_config: Any) -> None:  # Any: each pipeline's own configuration class
        """Keep the pipeline's configuration; a subclass registers its ``initialize`` and calls this one."""
        self.pipeline_config = pipeline_config

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.worker_name} of {self.world_size}>"
