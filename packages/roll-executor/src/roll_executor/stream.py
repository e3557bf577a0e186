"""Results of a generator method, as they come."""

import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from roll_executor.errors import CallTimeoutError
from roll_executor.release import release_stream
from roll_executor.transfer import Carriage
from roll_executor.workers import Workers


class ResultStream:
    """Yields what the collecting ranks of a generator method yield, in the order in which it comes.

    When a rank fails, the others are released as after any failed call.

    Args:
        workers: who runs it.
        sources: by rank, an iterator of references.
        collecting: ranks whose items are yielded; the others are only waited for.
        method: its name.
        timeout_s: seconds from now until the last item must have come.
        kill_peers_after_s: see ``WorkerConfig``.
        runtime: which references they are.
        carriage: what carries arguments beside the messages.
    """

    def __init__(
        self,
        workers: Workers,
        sources: Mapping[int, Iterator[Any]],  # Any: each runtime's own kind of reference
        collecting: Sequence[int],
        *,
        method: str,
        timeout_s: float | None,
        kill_peers_after_s: float | None,
        runtime: str,
        carriage: Carriage | None = None,
    ) -> None:
        self._workers = workers
        self._sources = dict(sources)
        self._collecting = frozenset(collecting)
        self._method = method
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._kill_peers_after_s = kill_peers_after_s
        self._runtime = runtime
        self._end: Callable[[], object] = lambda: None
        if carriage is not None:  # a stream that is not read to its end lets go when nobody holds it
            self._end = finalizer = weakref.finalize(self, carriage.end)
            finalizer.atexit = False

    def __iter__(self) -> Iterator[Any]:  # Any: items of the user's own generator
        return (item for _, item in self.by_rank())

    def by_rank(self) -> Iterator[tuple[int, Any]]:  # Any: items of the user's own generator
        """Yield pairs of rank and item.

        Raises:
            WorkerError: if a rank fails, after the items that came before.
            CallTimeoutError: if the last item has not come in time.
        """
        yield from self._by_rank()
        self._end()

    def _by_rank(self) -> Iterator[tuple[int, Any]]:  # Any: as above
        if len(self._sources) == 1 and self._deadline is None:
            ((rank, source),) = self._sources.items()
            yield from ((rank, self._value(rank, item)) for item in self._guarded(rank, source))
            return
        items: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()
        for rank, source in self._sources.items():
            threading.Thread(target=self._pump, args=(rank, source, items), daemon=True).start()
        running = set(self._sources)
        while running:
            rank, item, error = self._next(items, running)
            if error is not None:
                release_stream(
                    self._workers, sorted(running - {rank}), self._method, self._kill_peers_after_s
                )
                raise error
            if item is _END:
                running.discard(rank)
            elif rank in self._collecting:
                yield rank, item

    def _next(
        self, items: "queue.SimpleQueue[tuple[int, Any, BaseException | None]]", running: set[int]
    ) -> tuple[int, Any, BaseException | None]:  # Any: items of the user's own generator
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        try:
            return items.get(timeout=left)
        except queue.Empty:
            where = replace(self._workers.wheres[min(running)], method=self._method)
            late = CallTimeoutError(
                f"{where.cluster}.{self._method}: ranks {sorted(running)} had not yielded their last item "
                f"within {self._timeout_s:g} s (timeout_s); raise it, or look at what they wait for",
                where=where,
            )
            return -1, None, late

    def _pump(self, rank: int, source: Iterator[Any], items: "queue.SimpleQueue[Any]") -> None:
        try:
            for reference in self._guarded(rank, source):
                items.put((rank, self._value(rank, reference), None))
        except Exception as error:  # noqa: BLE001  # it is raised again in the reader's thread
            items.put((rank, None, error))
        else:
            items.put((rank, _END, None))

    def _guarded(self, rank: int, source: Iterator[Any]) -> Iterator[Any]:
        try:
            for item in source:  # noqa: UP028  # Ray's generators cannot be closed, as "yield from" would do
                yield item
        except Exception as error:
            if self._runtime != "ray":
                raise
            from roll_executor.on_ray import translate

            raise translate(error, replace(self._workers.wheres[rank], method=self._method)) from None

    def _value(self, rank: int, reference: Any) -> Any:  # Any: see __init__
        if self._runtime == "ray":
            from roll_executor.on_ray import fetch

            return fetch(reference, replace(self._workers.wheres[rank], method=self._method))
        return reference.result()


_END = object()
