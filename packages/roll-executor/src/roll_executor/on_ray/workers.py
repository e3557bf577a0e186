"""The workers of one cluster as Ray actors."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import ray

from roll_executor.control import ask_many
from roll_executor.errors import Where, WorkerError
from roll_executor.host import Header, Status
from roll_executor.on_ray.failures import translate
from roll_executor.workers import Outcome, Ticket

SMALL = (type(None), bool, int, float)
"""Values that cost less inside the call than beside it."""


class RayWorkers:
    """Actor handles and addresses of one cluster, which can be pickled into other actors.

    Args:
        actors: handles in rank order.
        wheres: node and process of each.
        controls: address of each control channel.
        token: what the control channels want to hear.
    """

    def __init__(
        self,
        actors: Sequence[Any],  # Any: Ray's actor handles have no type of their own for our methods
        *,
        wheres: Sequence[Where],
        controls: Sequence[tuple[str, int]],
        token: str,
    ) -> None:
        self.actors = list(actors)
        self.wheres = list(wheres)
        self._controls = dict(enumerate(controls))
        self._token = token
        self._calls = [actor.call.options(num_returns=2) for actor in actors]
        self.num_puts = 0
        """How many payloads have been put into the object store."""

    def __reduce__(self) -> tuple[Any, ...]:  # Any: what the pickle protocol asks for
        return _restore, (self.actors, self.wheres, list(self._controls.values()), self._token)

    def share(self, value: object) -> object:
        """Put a value into the object store once; what is tiny, or there already, stays as it is."""
        if isinstance(value, SMALL) or (isinstance(value, str | bytes) and len(value) < 1024):
            return value
        if isinstance(value, ray.ObjectRef):
            return value
        self.num_puts += 1
        return ray.put(value)

    def submit(self, rank: int, header: Header, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ticket:
        """Send one call to one rank."""
        try:
            result, status = self._calls[rank].remote(header, *args, **kwargs)
        except ray.exceptions.RayError as error:
            raise translate(error, self._at(rank, header.method)) from error
        return Ticket(rank, result, status)

    def stream(
        self, rank: int, header: Header, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[Any]:
        """Send one call of a generator method."""
        source: Iterator[Any] = (
            self.actors[rank].stream.options(num_returns="streaming").remote(header, *args, **kwargs)
        )
        return source

    def gather(
        self, tickets: Sequence[Ticket], collecting: Sequence[int], timeout_s: float | None
    ) -> tuple[dict[int, Any], dict[int, Status]]:
        """Wait for all calls; fetch the results of the collecting ranks only."""
        results = {ticket.rank: ticket.result for ticket in tickets}
        wanted = [results[rank] for rank in collecting]
        try:
            # The first failure ends the wait: Ray returns as soon as one of the objects is an error.
            found = ray.get([*(ticket.status for ticket in tickets), *wanted], timeout=timeout_s)
        except ray.exceptions.GetTimeoutError as late:
            raise TimeoutError(str(late)) from None
        except ray.exceptions.RayError as error:
            raise self._first_error(tickets, error) from None
        statuses = {ticket.rank: found[index] for index, ticket in enumerate(tickets)}
        return dict(zip(collecting, found[len(tickets) :], strict=True)), statuses

    def _first_error(self, tickets: Sequence[Ticket], error: BaseException) -> WorkerError:
        for outcome in self.outcomes(tickets, 0.0).values():
            if isinstance(outcome, WorkerError):
                return outcome
        return translate(error, self.wheres[tickets[0].rank])

    def outcomes(self, tickets: Sequence[Ticket], timeout_s: float) -> dict[int, Outcome]:
        """Return how each call ended, waiting at most ``timeout_s`` for those that have not."""
        waiting = [ticket.status for ticket in tickets]
        done, _ = ray.wait(waiting, num_returns=len(waiting), timeout=timeout_s, fetch_local=False)
        ended = set(done)
        found: dict[int, Outcome] = {}
        for ticket in tickets:
            if ticket.status not in ended:
                found[ticket.rank] = None
                continue
            try:
                found[ticket.rank] = ray.get(ticket.status)
            except ray.exceptions.RayError as error:
                found[ticket.rank] = translate(error, self.wheres[ticket.rank])
        return found

    def control(self, ranks: Sequence[int], command: str, timeout_s: float) -> dict[int, dict[str, Any]]:
        """Send a command to workers even while they are busy."""
        return ask_many(self._controls, ranks, self._token, command, timeout_s)

    def kill(self, ranks: Sequence[int]) -> None:
        """End these workers at once."""
        for rank in ranks:
            with contextlib.suppress(ray.exceptions.RayError, ValueError):
                ray.kill(self.actors[rank], no_restart=True)

    def close(self) -> None:
        """End all workers."""
        if ray.is_initialized():
            self.kill(range(len(self.actors)))

    def wait_dead(self, timeout_s: float) -> list[int]:
        """Return the ranks that still answer after ``timeout_s``; none, usually at once."""
        deadline = time.monotonic() + timeout_s
        left = list(self._controls)
        while left and time.monotonic() < deadline:
            left = list(self.control(left, "status", 0.5))
        return left

    def _at(self, rank: int, method: str) -> Where:
        where = self.wheres[rank]
        return Where(cluster=where.cluster, rank=rank, node=where.node, pid=where.pid, method=method)


def _restore(
    actors: Sequence[Any],  # Any: see RayWorkers
    wheres: Sequence[Where],
    controls: Sequence[tuple[str, int]],
    token: str,
) -> RayWorkers:
    return RayWorkers(actors, wheres=wheres, controls=controls, token=token)
