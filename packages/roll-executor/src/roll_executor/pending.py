"""A call under way: the references of its results, and how it ends."""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, NoReturn
from weakref import WeakValueDictionary

from roll_dispatch import Call
from roll_executor.errors import CallTimeoutError, TransferError, WorkerError
from roll_executor.host import Status
from roll_executor.release import release_peers, timed_out
from roll_executor.transfer import Carriage
from roll_executor.watch import watch
from roll_executor.workers import Ticket, Workers

_owners: "WeakValueDictionary[object, PendingResult]" = WeakValueDictionary()


OnEnd = Callable[[dict[int, Status] | None, float, object], None]


class OpenCall:
    """One call on the ranks of a cluster, from sending to its end.

    Args:
        workers: who runs it.
        plan: its parts, and how its outputs are joined.
        tickets: one per rank that was called.
        method: its name.
        timeout_s: seconds from now after which it has failed.
        kill_peers_after_s: see ``WorkerConfig``.
        on_end: told the statuses (None after a failure), the seconds and the outputs, once.
        carriage: what carries payloads beside the messages.
    """

    def __init__(
        self,
        workers: Workers,
        plan: Call,
        tickets: Sequence[Ticket],
        *,
        method: str,
        timeout_s: float | None,
        kill_peers_after_s: float | None,
        on_end: OnEnd,
        carriage: Carriage | None = None,
    ) -> None:
        self.workers = workers
        self.plan = plan
        self.tickets = list(tickets)
        self.method = method
        self.timeout_s = timeout_s
        self.kill_peers_after_s = kill_peers_after_s
        self._began = time.monotonic()
        self._on_end = on_end
        self._carriage = carriage
        self._lock = threading.Lock()
        self._outputs: dict[int, Any] | None = None  # Any: outputs of the user's own method
        self._error: Exception | None = None
        self._told = False
        self.delivered = False
        """Whether somebody has seen the end."""

    @property
    def ended(self) -> bool:
        """Whether the end is known on this side."""
        return self._outputs is not None or self._error is not None

    def finish(
        self, timeout_s: float | None = None
    ) -> dict[int, Any]:  # Any: outputs of the user's own method
        """Return the outputs of the collecting ranks, waiting for all ranks.

        Args:
            timeout_s: how long this caller waits; when it is over the call goes on.

        Raises:
            WorkerError: if the call failed on any rank, or passed its own deadline.
            TopologyError: if it was ``initialize`` and the published coordinates do not fit together.
        """
        with self._lock:
            try:
                if self._error is not None:
                    raise self._error
                if self._outputs is None:
                    self._outputs = self._wait(timeout_s)
                return self._outputs
            finally:
                self.delivered = self.ended

    def result(self, timeout_s: float | None = None) -> Any:  # Any: result of the user's own method
        """Return the joined result; see ``finish``."""
        return self.plan.collect(self.finish(timeout_s))

    def values(self, timeout_s: float | None = None) -> list[Any]:  # Any: outputs of the user's own method
        """Return the outputs of the collecting ranks in join order; see ``finish``."""
        outputs = self.finish(timeout_s)
        return [outputs[rank] for rank in self.plan.collecting_ranks]

    def _wait(self, timeout_s: float | None) -> dict[int, Any]:  # Any: outputs of the user's own method
        left = None if self.timeout_s is None else max(0.0, self._began + self.timeout_s - time.monotonic())
        patience = left if timeout_s is None else min(timeout_s, left if left is not None else timeout_s)
        try:
            outputs, statuses = self.workers.gather(self.tickets, self.plan.collecting_ranks, patience)
        except TimeoutError:
            if patience is not left:
                raise self._impatient(timeout_s) from None
            self._fail(timed_out(self))
        except WorkerError as first:
            self._fail(release_peers(self, first))
        if self._carriage is not None:
            outputs = self._unloaded(self._carriage, outputs)
        self._note_end(statuses, outputs)
        if self._error is not None:
            raise self._error
        return outputs

    def _unloaded(
        self, carriage: Carriage, outputs: dict[int, Any]
    ) -> dict[int, Any]:  # Any: outputs of the user's own method
        try:
            return {rank: carriage.unload(value) for rank, value in outputs.items()}
        except TransferError as lost:
            self._note(lost)
            raise

    def look(self) -> bool:
        """Note without waiting whether the call has failed or is late, and release its ranks if so.

        Returns:
            Whether nothing more can happen to the call.
        """
        if not self._lock.acquire(blocking=False):
            return False  # somebody waits for the call and sees to it
        try:
            if self.ended:
                return True
            outcomes = self.workers.outcomes(self.tickets, 0.0)
            failed = [outcome for outcome in outcomes.values() if isinstance(outcome, WorkerError)]
            if failed:
                self._note(release_peers(self, self.workers.explained(failed[0])))
            elif None not in outcomes.values():
                self._note_end({rank: o for rank, o in outcomes.items() if isinstance(o, Status)})
                return True
            elif self.timeout_s is not None and time.monotonic() > self._began + self.timeout_s:
                self._note(timed_out(self))
            return self.ended
        finally:
            self._lock.release()

    def _fail(self, error: WorkerError) -> NoReturn:
        self._note(error)
        raise error from error.original

    def _note(self, error: WorkerError | TransferError) -> None:
        self._error = error
        self._note_end(None)

    def _note_end(self, statuses: dict[int, Status] | None, outputs: object = None) -> None:
        if not self._told:
            self._told = True
            if self._carriage is not None:
                self._carriage.end(failed=statuses is None)
            try:
                self._on_end(statuses, time.monotonic() - self._began, outputs)
            except ValueError as broken:  # coordinates that do not fit together: raised when somebody asks
                self._error = broken

    def _impatient(self, timeout_s: float | None) -> CallTimeoutError:
        outcomes = self.workers.outcomes(self.tickets, 0.0)
        late = [rank for rank, outcome in outcomes.items() if outcome is None]
        where = self.workers.wheres[late[0] if late else 0]
        return CallTimeoutError(
            f"{where.cluster}.{self.method}: ranks {late} had not answered after {timeout_s} s; the call "
            "goes on, ask for its result again or give it a timeout_s of its own",
            where=where,
        )


class PendingResult(list[Any]):  # Any: each runtime's own kind of reference
    """The references of a non-blocking call: those of the collecting ranks, in join order.

    ``ray.get`` and ``DataProto.materialize_concat`` take it as the list that it is.
    """

    def __init__(self, call: OpenCall) -> None:
        by_rank = {ticket.rank: ticket.result for ticket in call.tickets}
        super().__init__(by_rank[rank] for rank in call.plan.collecting_ranks)
        self._call = call
        self.all_refs: list[Any] = list(by_rank.values())
        """References of every rank that was called, by rank."""
        for reference in self.all_refs:
            _owners[reference] = self
        if not call.ended:
            watch.add(call)

    def result(
        self, timeout_s: float | None = None
    ) -> Any:  # Any: what the blocking call would have returned
        """Return what the blocking call would have returned.

        Raises:
            WorkerError: if any rank failed.
            CallTimeoutError: if the call is not done within ``timeout_s``.
        """
        return self._call.result(timeout_s)

    def values(self, timeout_s: float | None = None) -> list[Any]:  # Any: outputs of the user's own method
        """Return the outputs of the collecting ranks in join order, not joined."""
        return self._call.values(timeout_s)

    def __await__(self) -> Generator[Any, None, Any]:  # Any: as result()
        return asyncio.to_thread(self.result).__await__()

    def __reduce__(self) -> tuple[Any, ...]:  # Any: what the pickle protocol asks for
        return list, (list(self),)

    __hash__ = object.__hash__  # type: ignore[assignment]  # lists are unhashable; calls are told apart by identity


def owners_of(refs: Sequence[object]) -> list[PendingResult]:
    """Return the calls that references belong to, each once; references of nobody's are left out."""
    if isinstance(refs, PendingResult):
        return [refs]
    found = [owner for reference in refs if (owner := _owners.get(reference)) is not None]
    return list(dict.fromkeys(found))
