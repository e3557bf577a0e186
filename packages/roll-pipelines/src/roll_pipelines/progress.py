"""What a run waits for while it starts: said when it begins, when each is there, and in between."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

logger = logging.getLogger(__name__)


class Waiting:
    """Says what is waited for, each thing as it comes, and every so many seconds what is still missing.

    Example:
        >>> with Waiting("start", ["actor", "critic"]) as waiting:
        ...     waiting.done("actor")
        ...     waiting.missing
        ['critic']
    """

    def __init__(
        self,
        what: str,
        names: Iterable[str],
        *,
        every_s: float = 15.0,
        tell: Callable[[str], None] = logger.info,
    ) -> None:
        """Takes what is waited for.

        Args:
            what: what happens to each, such as `start`.
            names: each of them.
            every_s: seconds between two reminders.
            tell: gets each message.
        """
        self.missing = list(names)
        """What is not there yet."""
        self._what, self._every_s, self._tell = what, every_s, tell
        self._started, self._over = time.monotonic(), threading.Event()
        self._reminder = threading.Thread(target=self._remind, name=f"waiting-{what}", daemon=True)

    def done(self, name: str) -> None:
        """Says that one of them is there."""
        self.missing.remove(name)
        self._tell(f"{self._what}: {name} ready after {time.monotonic() - self._started:.1f} s")

    def __enter__(self) -> Self:
        """Says what is waited for."""
        self._tell(f"{self._what}: {', '.join(self.missing)}")
        self._reminder.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the reminders."""
        self._over.set()
        self._reminder.join()

    def _remind(self) -> None:
        while not self._over.wait(self._every_s):
            seconds = time.monotonic() - self._started
            self._tell(f"{self._what}: waiting for {', '.join(self.missing)}, {seconds:.0f} s so far")
