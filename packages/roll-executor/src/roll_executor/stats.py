"""What a cluster counts of its calls."""

import threading
from collections import deque
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """When one call ran."""

    method: str
    started: float
    """Seconds since the epoch, by the clock of the worker that began first."""
    seconds: float
    """Until the last worker was done."""


RECENT = 1000
"""Calls whose time is kept."""


class Stats:
    """Counts of all methods of a cluster; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._methods: dict[str, MethodStats] = {}
        self._spans: deque[Span] = deque(maxlen=RECENT)

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
            if statuses:
                began = min(status.started for status in statuses.values())
                ended = max(status.started + status.seconds for status in statuses.values())
                self._spans.append(Span(method=method, started=began, seconds=ended - began))

    def spans(self) -> list[Span]:
        """Return when the last calls ran, the oldest first."""
        with self._lock:
            return list(self._spans)

    def read(self) -> dict[str, MethodStats]:
        """Return a copy of the counts by method."""
        with self._lock:
            return {name: replace(entry) for name, entry in self._methods.items()}
