"""A run whose runtime has ended: noticed at once, by a thread, and said in the main thread."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)


@contextmanager
def keeping_handler(number: signal.Signals) -> Iterator[None]:
    """Keeps the handler of a signal over a block that replaces it; only the main thread can.

    Args:
        number: the signal.
    """
    handler = signal.getsignal(number)
    try:
        yield
    finally:
        if callable(handler) and threading.current_thread() is threading.main_thread():
            signal.signal(number, handler)


class RuntimeEndedError(RuntimeError):
    """A process of the runtime has ended, so that no call of this run comes back."""


class RuntimeWatch:
    """Asks again and again whether the runtime still stands; when it does not, interrupts the main thread.

    Whoever runs in the main thread is interrupted as by Ctrl-C, or as by SIGTERM where Ctrl-C is ignored.
    """

    def __init__(self, ended: Callable[[], list[str]], *, every_s: float = 0.5) -> None:
        """Takes whom to ask.

        Args:
            ended: returns the names of what has ended.
            every_s: seconds between two questions.
        """
        self.ended = ""
        """What has ended; empty while all stands."""
        self._ask, self._every_s, self._over = ended, every_s, threading.Event()
        self._thread = threading.Thread(target=self._watch, name="runtime-watch", daemon=True)
        self._thread.start()

    def error(self) -> RuntimeEndedError | None:
        """Returns what to raise when the runtime has ended."""
        if not self.ended:
            return None
        return RuntimeEndedError(
            f"{self.ended} of Ray has ended: it was killed, the machine ran out of memory, or it crashed; "
            f"see its log under the session of Ray, /tmp/ray/session_latest/logs"
        )

    def close(self) -> None:
        """Ends the thread, and asks a last time: a call that failed may have come before the question."""
        if self._over.is_set():
            return
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self.ended = self.ended or ", ".join(self._ask())

    def _watch(self) -> None:
        while not self._over.wait(self._every_s):
            if found := self._ask():
                self.ended = ", ".join(found)
                logger.error("%s of Ray has ended; this run cannot go on", self.ended)
                for number in (signal.SIGINT, signal.SIGTERM):
                    if callable(signal.getsignal(number)):
                        # A real signal: one that Python only notes would not end a wait for a lock.
                        signal.pthread_kill(threading.main_thread().ident or 0, number)
                        return
                return
