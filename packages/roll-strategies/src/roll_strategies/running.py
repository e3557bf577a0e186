"""Requests that an engine works on, which another thread may end."""

import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager


class RunningRequests:
    """Names of the requests that an engine works on now, and which of them have been told to end.

    A name that no running call has is not kept: a request of that name that starts later is another one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self._aborted: set[str] = set()

    @contextmanager
    def working_on(self, names: Collection[str]) -> Iterator[None]:
        """Lets these requests be aborted while the context is open.

        Args:
            names: of a call's prompts; several prompts, and several calls, may share one.
        """
        with self._lock:
            self._running.update(names)
        try:
            yield
        finally:
            with self._lock:
                self._running -= Counter(names)
                self._aborted.intersection_update(self._running)

    def abort(self, names: Collection[str]) -> None:
        """Tells those of these requests to end that run now."""
        with self._lock:
            self._aborted |= self._running.keys() & set(names)

    def is_aborted(self, name: str) -> bool:
        """Whether a running request has been told to end."""
        return name in self._aborted

    def __len__(self) -> int:
        """Number of names that are kept."""
        return len(self._running.keys() | self._aborted)
