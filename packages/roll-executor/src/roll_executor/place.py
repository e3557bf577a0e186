"""Where one worker stands: what the executor tells it before it is built."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlace:
    """Coordinates and addresses of one worker."""

    cluster_name: str
    rank: int
    world_size: int
    local_rank: int = 0
    master_addr: str = "127.0.0.1"
    master_port: int = 0
    device_ids: tuple[int, ...] = ()
    """Global ids of its devices, in mapping order."""
    node: str = ""
    """Address of its node."""

    @property
    def worker_name(self) -> str:
        """Name in logs, e.g. ``actor_train-0``."""
        return f"{self.cluster_name}-{self.rank}"

    def environment(self) -> dict[str, str]:
        """Return the variables that distributed libraries read."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(self.local_rank),
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port),
            "CLUSTER_NAME": self.cluster_name,
            "WORKER_NAME": self.worker_name,
        }

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "WorkerPlace":
        """Return the place that the variables tell; a process without them is the only worker there is."""
        return cls(
            cluster_name=environment.get("CLUSTER_NAME", "worker"),
            rank=int(environment.get("RANK", "0")),
            world_size=int(environment.get("WORLD_SIZE", "1")),
            local_rank=int(environment.get("LOCAL_RANK", "0")),
            master_addr=environment.get("MASTER_ADDR", "127.0.0.1"),
            master_port=int(environment.get("MASTER_PORT", "0")),
        )


_place: ContextVar[WorkerPlace | None] = ContextVar("roll_executor_place", default=None)


@contextmanager
def standing_at(place: WorkerPlace) -> Iterator[None]:
    """Let workers that are built inside the block stand at this place."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


def current_place() -> WorkerPlace:
    """Return the place of the worker that is being built here."""
    return _place.get() or WorkerPlace.from_environment(os.environ)
