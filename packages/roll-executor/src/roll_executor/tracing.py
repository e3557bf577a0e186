"""OpenTelemetry spans around calls, when its API is installed (extra ``otel``); nothing otherwise."""

import functools
import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

SCOPE = "roll_executor"


class CallSpan:
    """The driver's span of one call; its context travels beside the payload.

    Args:
        cluster: name of the cluster.
        method: what is called.
        num_ranks: how many workers the cluster has.
    """

    def __init__(self, cluster: str, method: str, *, num_ranks: int) -> None:
        self.context: dict[str, str] = {}
        """W3C trace context for the workers; empty without OpenTelemetry."""
        self._span: Any = None  # Any: OpenTelemetry may not be installed
        if not installed():
            return
        trace, propagate, tracer = _api()
        attributes = {"roll.cluster": cluster, "roll.method": method, "roll.ranks": num_ranks}
        self._span = tracer.start_span(
            f"{cluster}.{method}", kind=trace.SpanKind.CLIENT, attributes=attributes
        )
        if (
            self._span.get_span_context().is_valid
        ):  # else nobody has set a provider up: there is nothing to tell
            propagate.inject(self.context, context=trace.set_span_in_context(self._span))

    def end(self, *, failed: bool) -> None:
        """End the span."""
        if self._span is None:
            return
        if failed:
            trace, _, _ = _api()
            self._span.set_status(trace.StatusCode.ERROR)
        self._span.end()


@contextmanager
def working(worker: str, method: str, context: Mapping[str, str]) -> Iterator[None]:
    """Run a worker's part of a call in a span that continues the driver's, if there is one."""
    if not context or not installed():
        yield
        return
    trace, propagate, tracer = _api()
    with tracer.start_as_current_span(
        f"{worker}.{method}",
        context=propagate.extract(context),
        kind=trace.SpanKind.SERVER,
        attributes={"roll.worker": worker, "roll.method": method},
    ):
        yield


@functools.cache
def installed() -> bool:
    """Return whether OpenTelemetry's API can be imported."""
    if importlib.util.find_spec("opentelemetry") is None:
        return False
    return importlib.util.find_spec("opentelemetry.trace") is not None


@functools.cache
def _api() -> tuple[Any, Any, Any]:  # Any: modules of a library that need not be installed
    """Return OpenTelemetry's two modules and our tracer, which follows a provider that is set later."""
    trace = importlib.import_module("opentelemetry.trace")
    return trace, importlib.import_module("opentelemetry.propagate"), trace.get_tracer(SCOPE)
