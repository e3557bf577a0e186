"""One message to every worker of a cluster, sent from anywhere: the object-store transport of weights."""

from collections.abc import Sequence
from typing import Any

from roll_executor.host import Header
from roll_executor.workers import Ticket, Workers


class Answer:
    """The answers to one message, under way or there."""

    def __init__(self, workers: Workers, tickets: Sequence[Ticket]) -> None:
        self._workers = workers
        self._tickets = list(tickets)

    def result(self, timeout_s: float | None = None) -> list[object]:
        """Return one answer per worker in rank order.

        Raises:
            WorkerError: if a worker failed.
            TimeoutError: if they have not all answered within ``timeout_s``; it names those that have not.
        """
        ranks = [ticket.rank for ticket in self._tickets]
        try:
            outputs, _ = self._workers.gather(self._tickets, ranks, timeout_s)
        except TimeoutError as late:
            ended = self._workers.outcomes(self._tickets, 0.0)
            silent = [rank for rank in ranks if ended.get(rank) is None]
            method = self._tickets[0].method
            raise TimeoutError(f"ranks {silent} did not answer {method}() within {timeout_s} s") from late
        return [outputs[rank] for rank in ranks]


class ClusterTransport:
    """Carries messages to all workers of one cluster; the payload is serialised once, whatever their number.

    It can be pickled into the workers of another cluster.
    """

    def __init__(self, workers: Workers, world_size: int) -> None:
        self._workers = workers
        self.world_size = world_size

    def __deepcopy__(self, memo: object) -> "ClusterTransport":
        """Return the transport itself: a worker in this process reaches the same workers."""
        return self

    def send(self, method: str, payload: object = None) -> Answer:
        """Call ``method(payload)`` on every worker, or ``method()`` when there is no payload.

        Args:
            method: a public method of the workers.
            payload: the argument, or a tuple of arguments.
        """
        args: tuple[Any, ...]  # Any: arguments of the user's own method
        args = payload if isinstance(payload, tuple) else (() if payload is None else (payload,))
        shared = tuple(self._workers.share(value) if self.world_size > 1 else value for value in args)
        header = Header(method=method)
        return Answer(
            self._workers, [self._workers.submit(rank, header, shared, {}) for rank in range(self.world_size)]
        )
