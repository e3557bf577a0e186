"""What a runtime must be able to do with the workers of one cluster."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from roll_executor.errors import Where, WorkerError
from roll_executor.host import Header, Status
from roll_executor.worker_config import WorkerConfig
from roll_resources import Allocation, Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The order to start the workers of one cluster."""

    name: str
    worker_cls: type
    config: WorkerConfig
    allocation: Allocation | None
    """Where they stand; None until their places are reserved."""
    is_async: bool
    """Whether the class has coroutine methods."""
    max_concurrency: int
    environment: Mapping[str, str]
    """What the user wants in the workers' environment."""
    start_timeout_s: float
    max_restarts: int = 0
    """How often a dead worker is started again."""
    cold_until: str | None = None
    """See ``WorkerConfig``."""

    @property
    def placements(self) -> tuple[Placement, ...]:
        """One place per worker, in rank order."""
        assert self.allocation is not None, "places are reserved before workers are started"
        return self.allocation.placements


@dataclass(frozen=True, slots=True)
class Ticket:
    """One call on one rank, under way or done."""

    rank: int
    result: Any  # Any: each runtime's own kind of reference
    status: Any  # Any: as above
    method: str
    whole: bool = False
    """Whether result and status are one and the same reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How one worker is."""

    rank: int
    state: str
    """``"idle"``, ``"busy"``, ``"cold"`` (lacks its weights), ``"silent"`` (no answer) or ``"dead"``."""
    where: Where
    running: tuple[tuple[str, float], ...] = ()
    """Methods under way, with their seconds."""
    idle_s: float | None = None
    """Seconds since the last sign of life."""
    calls: int = 0
    log_files: tuple[str, ...] = ()


END_S = 1.0
"""Seconds that hooks have before their worker is ended by ``close``."""
Outcome = Status | WorkerError | None
"""How a rank's call ended; None: not yet."""


class Workers(Protocol):
    """The running workers of one cluster."""

    num_puts: int
    """How many payloads ``share`` has serialised."""

    @property
    def wheres(self) -> Sequence[Where]:
        """Node and process of every rank."""
        ...

    def share(self, value: object) -> object:
        """Return what to pass for a value that several ranks receive, so that it is serialised once."""
        ...

    def submit(
        self,
        rank: int,
        header: Header,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        whole: bool = False,
    ) -> Ticket:
        """Send one call to one rank.

        Args:
            rank: which.
            header: what is called.
            args, kwargs: its own arguments.
            whole: the caller will fetch the result and hand out no reference to it; one answer may carry all.
        """
        ...

    def stream(
        self, rank: int, header: Header, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[Any]:
        """Send one call of a generator method and return an iterator of references to what it yields."""
        ...

    def gather(
        self, tickets: Sequence[Ticket], collecting: Sequence[int], timeout_s: float | None
    ) -> tuple[dict[int, Any], dict[int, Status]]:
        """Wait for all calls; return the results of the collecting ranks and the status of every rank.

        Raises:
            WorkerError: as soon as one call fails.
            TimeoutError: when the time is up.
        """
        ...

    def outcomes(self, tickets: Sequence[Ticket], timeout_s: float) -> dict[int, Outcome]:
        """Return how each call ended, waiting at most ``timeout_s`` for those that have not."""
        ...

    def explained(self, error: WorkerError) -> WorkerError:
        """Return an error with what can be told of its worker, such as what it wrote last."""
        ...

    def control(self, ranks: Sequence[int], command: str, timeout_s: float) -> dict[int, dict[str, Any]]:
        """Send a command to workers even while they are busy; ranks that do not answer are left out."""
        ...

    def revive(self) -> list[int]:
        """Build the workers anew that have died and been started again; return their ranks.

        Raises:
            WorkerError: if one stays dead.
        """
        ...

    def health(self) -> list[Health]:
        """Return how every worker is, whatever it does."""
        ...

    def surroundings(self) -> list[str]:
        """Return lines about what the workers share, such as the object store, for errors of late calls."""
        ...

    def kill(self, ranks: Sequence[int]) -> None:
        """End these workers at once."""
        ...

    def close(self) -> None:
        """End all workers; twice does nothing."""
        ...
