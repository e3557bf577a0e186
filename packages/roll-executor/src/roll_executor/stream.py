"""Results of a generator method, as they come."""

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roll_executor.errors import Where


class ResultStream:
    """Yields what the collecting ranks of a generator method yield, in the order in which it comes.

    Args:
        sources: by rank, an iterator of references.
        collecting: ranks whose items are yielded; the others are only waited for.
        wheres: node and process of every rank.
        runtime: which references they are.
    """

    def __init__(
        self,
        sources: Mapping[int, Iterator[Any]],  # Any: each runtime's own kind of reference
        collecting: Sequence[int],
        *,
        wheres: Sequence[Where],
        runtime: str,
    ) -> None:
        self._sources = dict(sources)
        self._collecting = frozenset(collecting)
        self._wheres = wheres
        self._runtime = runtime

    def __iter__(self) -> Iterator[Any]:  # Any: items of the user's own generator
        return (item for _, item in self.by_rank())

    def by_rank(self) -> Iterator[tuple[int, Any]]:  # Any: items of the user's own generator
        """Yield pairs of rank and item.

        Raises:
            WorkerError: if a rank fails, after the items that came before.
        """
        if len(self._sources) == 1:
            ((rank, source),) = self._sources.items()
            yield from ((rank, self._value(rank, item)) for item in self._guarded(rank, source))
            return
        items: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()
        for rank, source in self._sources.items():
            threading.Thread(target=self._pump, args=(rank, source, items), daemon=True).start()
        running = len(self._sources)
        while running:
            rank, item, error = items.get()
            if error is not None:
                raise error
            if item is _END:
                running -= 1
            elif rank in self._collecting:
                yield rank, item

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
            yield from source
        except Exception as error:
            if self._runtime != "ray":
                raise
            from roll_executor.on_ray import translate

            raise translate(error, self._wheres[rank]) from None

    def _value(self, rank: int, reference: Any) -> Any:  # Any: see __init__
        if self._runtime == "ray":
            from roll_executor.on_ray import fetch

            return fetch(reference, self._wheres[rank])
        return reference.result()


_END = object()
