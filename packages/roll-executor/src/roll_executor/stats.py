"""What a cluster counts of its calls."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

from roll_executor.host import Status


@dataclass(slots=True, kw_only=True)
class MethodStats:
    """Counts and seconds of one method of a cluster."""

    count: int = 0
    """Calls that ended well."""
    failures: int = 0
    """Calls that raised."""
    driver_s: float = 0.0
    """Seconds from sending to the last answer, summed over calls."""
    worker_s: float = 0.0
    """Seconds of the slowest rank, summed over calls."""

    bytes_sent: int = 0
    """Bytes of arguments, as far as they can be told; what several ranks share counts once."""
    bytes_received: int = 0
    """Bytes of results that came to the driver through this object."""

    @property
    def queue_s(self) -> float:
        """Seconds that calls spent on the way and in queues."""
        return max(0.0, self.driver_s - self.worker_s)


class Stats:
    """Counts of all methods of a cluster; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._methods: dict[str, MethodStats] = {}

    def add(
        self,
        method: str,
        statuses: Mapping[int, Status] | None,
        seconds: float,
        *,
        sent: int = 0,
        received: int = 0,
    ) -> None:
        """Count one call; without statuses it failed."""
        with self._lock:
            entry = self._methods.setdefault(method, MethodStats())
            entry.bytes_sent += sent
            entry.bytes_received += received
            if statuses is None:
                entry.failures += 1
                return
            entry.count += 1
            entry.driver_s += seconds
            entry.worker_s += max((status.seconds for status in statuses.values()), default=0.0)

    def read(self) -> dict[str, MethodStats]:
        """Return a copy of the counts by method."""
        with self._lock:
            return {name: replace(entry) for name, entry in self._methods.items()}
