"""A thread that looks after calls nobody waits for: their failures and deadlines count too."""

import logging
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roll_executor.pending import OpenCall

logger = logging.getLogger(__name__)

PERIOD_S = 0.25


class Watch:
    """Looks at every open call four times a second until it has ended."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._calls: list[OpenCall] = []
        self._thread: threading.Thread | None = None

    def add(self, call: "OpenCall") -> None:
        """Look after a call."""
        with self._condition:
            self._calls.append(call)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="roll-watch", daemon=True)
                self._thread.start()
            self._condition.notify()

    def forget(self, workers: object) -> None:
        """Look no longer after the calls of these workers."""
        with self._condition:
            self._calls = [call for call in self._calls if call.workers is not workers]

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._calls:
                    self._condition.wait()
                calls = list(self._calls)
            ended = [call for call in calls if _look(call)]
            with self._condition:
                self._calls = [call for call in self._calls if call not in ended]
            time.sleep(PERIOD_S)


def _look(call: "OpenCall") -> bool:
    try:
        return call.look()
    except Exception:
        logger.exception("the watch lost sight of %s", call.method)
        return True


watch = Watch()
"""The watch of this process."""
