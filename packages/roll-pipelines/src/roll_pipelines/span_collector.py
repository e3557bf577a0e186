"""Spans on their way to a collector, by OTLP over HTTP: a collector that is gone costs a run nothing."""

import importlib
import logging
import os
import threading
import time
from collections import deque
from typing import Any

logger = logging.getLogger(__name__)

PATH = "/v1/traces"
MOST_WAITING = 20_000
"""Spans that wait at most; the oldest are dropped."""
MOST_AT_ONCE = 512
GATHER_S = 0.2
"""Spans that end within this time travel together."""
RETRY_S = 5.0
FIRST_S = 2.0
"""Longest wait for the collector's first answer, which decides who complains."""
LAST_S = 2.0
"""Longest wait for the last spans to be taken."""


def traces_url(endpoint: str | None) -> str:
    """Returns the address that spans are posted to.

    Args:
        endpoint: an address with or without a path; None: what the variables of OpenTelemetry say.
    """
    if endpoint is not None:
        scheme, _, rest = endpoint.partition("://")
        return endpoint if rest.strip("/").count("/") else f"{scheme}://{rest.rstrip('/')}{PATH}"
    if whole := os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        return whole
    base = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or "http://localhost:4318"
    return base.rstrip("/") + PATH


class CollectorSpans:
    """Sends every span that ends from a thread of its own; a span processor of OpenTelemetry.

    Nobody who makes spans ever waits for the collector. While it does not answer, spans wait (the oldest are
    dropped), it is tried again every few seconds, and the trouble is said once.
    """

    def __init__(self, url: str, *, quiet: bool = False, retry_s: float = RETRY_S) -> None:
        """Begins, and asks the collector whether it is there.

        Args:
            url: address that spans are posted to.
            quiet: leave it to others to say that the collector does not answer.
            retry_s: seconds until a collector that did not answer is asked again.
        """
        module = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
        exporter: Any = importlib.import_module(module)  # Any: an extra
        self._exporter: Any = exporter.OTLPSpanExporter(endpoint=url)  # Any: an extra
        self._url, self._said, self._retry_s = url, quiet, retry_s
        self._waiting: deque[Any] = deque(maxlen=MOST_WAITING)  # Any: spans of a library that is an extra
        self._changed = threading.Condition()
        self._sending, self._over = True, False
        self._answers: bool | None = None
        self._thread = threading.Thread(target=self._run, name="roll-spans", daemon=True)
        self._library = logging.getLogger(exporter.__name__)
        self._library.addFilter(self._overhear)
        self._thread.start()

    def answers(self, timeout_s: float = FIRST_S) -> bool:
        """Returns whether the collector took what it was sent last, waiting for its first answer.

        Args:
            timeout_s: longest wait.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._answers is not None, timeout_s)
            return bool(self._answers)

    def on_start(self, span: object, parent_context: object = None) -> None:
        """Does nothing."""

    def _on_ending(self, span: object) -> None:
        """Does nothing."""

    def on_end(self, span: Any) -> None:  # Any: as above
        """Queues the span."""
        if span.context.trace_flags.sampled:
            with self._changed:
                self._waiting.append(span)
                self._changed.notify_all()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Returns whether all that was waiting has been taken."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, timeout_millis / 1000) and not self._waiting

    def shutdown(self) -> None:
        """Sends what is waiting, for two seconds at most and only to a collector that answers; then ends."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
            if not self._changed.wait_for(self._is_idle, LAST_S):
                self._hear(False, f"it has not taken the last ones within {LAST_S:g} s")
            self._said = True
        self._exporter.shutdown()

    def _is_idle(self) -> bool:
        return self._answers is False or not (self._waiting or self._sending)

    def _run(self) -> None:
        try:
            self._send()
        finally:
            self._library.removeFilter(self._overhear)

    def _send(self) -> None:
        batch: list[Any] = []  # Any: spans; the first batch is empty and only asks for an answer
        while True:
            taken = self._exporter.export(batch).name == "SUCCESS"
            with self._changed:
                self._hear(taken)
                if not taken:
                    room = MOST_WAITING - len(self._waiting)
                    self._waiting.extendleft(batch[::-1][:room])
                self._sending = False
                self._changed.notify_all()
                if not self._pause(taken=taken):
                    return
                batch = [self._waiting.popleft() for _ in range(min(MOST_AT_ONCE, len(self._waiting)))]
                self._sending = True

    def _pause(self, *, taken: bool) -> bool:
        """Waits until there is something to send; returns whether there is."""
        if not taken:
            self._changed.wait_for(lambda: self._over, self._retry_s)
        else:
            self._changed.wait_for(lambda: self._waiting or self._over)
            until = time.monotonic() + GATHER_S
            self._changed.wait_for(
                lambda: self._over or len(self._waiting) >= MOST_AT_ONCE, until - time.monotonic()
            )
        return not self._over or (taken and bool(self._waiting))

    def _overhear(self, record: logging.LogRecord) -> bool:
        """Takes the exporter's own lines about this collector, so that they are said once, in our words."""
        if threading.current_thread() is not self._thread:
            return True
        with self._changed:
            self._hear(False, record.getMessage())
        return False

    def _hear(self, taken: bool, reason: str = "it refuses what it is sent") -> None:
        if not taken and not self._said:
            self._said = True
            logger.warning(
                "the collector at %s does not take spans: %s; the run goes on without, and tries it again. "
                "Start the collector, or set telemetry.endpoint or telemetry.spans",
                self._url,
                reason,
            )
        self._answers = taken
        self._changed.notify_all()
