"""Spans of a run: every step and every call, on the driver and in the workers, to a file or a collector."""

import importlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from roll_pipelines.config.base_config import TelemetryConfig
from roll_pipelines.span_collector import CollectorSpans, traces_url

VARIABLE = "ROLL_TELEMETRY"
"""Tells a worker's process what to do with its spans."""
SPANS_FOLDER = "spans"
SCOPE = "roll_pipelines"


class FileSpans:
    """Writes every span that ends as one JSON object a line; a span processor of OpenTelemetry."""

    def __init__(self, path: Path) -> None:
        """Opens the file for appending."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file, self._lock = path.open("a", encoding="utf-8"), threading.Lock()

    def on_start(self, span: object, parent_context: object = None) -> None:
        """Does nothing."""

    def _on_ending(self, span: object) -> None:
        """Does nothing."""

    def on_end(self, span: Any) -> None:  # Any: a span of a library that need not be installed
        """Writes the span."""
        line = {
            "name": span.name,
            "trace": f"{span.context.trace_id:032x}",
            "span": f"{span.context.span_id:016x}",
            "parent": f"{span.parent.span_id:016x}" if span.parent else None,
            "start": span.start_time / 1e9,
            "seconds": (span.end_time - span.start_time) / 1e9,
            "failed": span.status.status_code.name == "ERROR",
            "attributes": dict(span.attributes or {}),
        }
        with self._lock:
            if not self._file.closed:
                self._file.write(json.dumps(line, default=str) + "\n")
                self._file.flush()

    def shutdown(self) -> None:
        """Closes the file."""
        with self._lock:
            self._file.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Returns that nothing is waiting: every span was written as it ended."""
        return True


class _Outlets:
    """The one span processor that a process's provider gets, since a provider never gives one back."""

    def __init__(self) -> None:
        self.open: list[Any] = []  # Any: span processors

    def on_start(self, span: object, parent_context: object = None) -> None:
        for outlet in self.open:
            outlet.on_start(span, parent_context)

    def _on_ending(self, span: object) -> None:
        for outlet in self.open:
            outlet._on_ending(span)

    def on_end(self, span: object) -> None:
        for outlet in self.open:
            outlet.on_end(span)

    def shutdown(self) -> None:
        for outlet in self.open:
            outlet.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return all(outlet.force_flush(timeout_millis) for outlet in self.open)


_OUTLETS = _Outlets()


class Telemetry:
    """What one process of a run does with its spans."""

    def __init__(self, config: TelemetryConfig, run_dir: Path, *, who: str, quiet: bool = False) -> None:
        """Begins to collect the spans of this process, when the configuration asks for it.

        Args:
            config: where spans go.
            run_dir: files of spans stand below it.
            who: this process's name, such as `driver` or `actor_train-0`.
            quiet: the driver has said already that the collector does not answer.
        """
        self._config, self._run_dir = config, run_dir
        self._outlet: Any = None  # Any: a span processor
        self._step: Any = None  # Any: a span
        self._leave: Callable[[], None] | None = None
        if config.spans is not None:
            self._outlet = _outlet(config, run_dir / SPANS_FOLDER / f"{who}.jsonl", quiet=quiet)
            _attach(config, who)
            _OUTLETS.open.append(self._outlet)

    def environment(self) -> dict[str, str]:
        """Returns the variables with which a worker's process does the same."""
        if self._outlet is None:
            return {}
        config, quiet = self._config, False
        if isinstance(self._outlet, CollectorSpans):
            config = replace(config, endpoint=traces_url(config.endpoint))
            quiet = not self._outlet.answers()
        told = {"config": vars(config), "run_dir": str(self._run_dir), "quiet": quiet}
        passed = {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}
        return {**passed, VARIABLE: json.dumps(told)}

    def begin_step(self, step: int) -> None:
        """Opens the span of a step; calls until it ends are parts of it."""
        self.end_step()
        if self._outlet is None:
            return
        trace: Any = importlib.import_module("opentelemetry.trace")  # Any: an extra
        context: Any = importlib.import_module("opentelemetry.context")  # Any: an extra
        self._step = trace.get_tracer(SCOPE).start_span(f"step {step}", attributes={"roll.step": step})
        token = context.attach(trace.set_span_in_context(self._step))
        self._leave = lambda: context.detach(token)

    def end_step(self) -> None:
        """Closes the span of the step, if there is one."""
        if self._leave is not None:
            self._leave()
            self._step.end()
            self._leave = None

    def close(self) -> None:
        """Sends what is waiting and stops collecting; twice does nothing."""
        self.end_step()
        outlet, self._outlet = self._outlet, None
        if outlet is not None:
            _OUTLETS.open.remove(outlet)
            outlet.shutdown()


class TelemetryHook:
    """Collects the spans of a worker's process; entry-point group `roll.call_hooks`."""

    def __init__(self) -> None:
        """Holds nothing yet."""
        self._telemetry: Telemetry | None = None

    def start_worker(self, worker: object) -> None:
        """Begins when the driver has told this process to."""
        told: Mapping[str, Any] = json.loads(os.environ.pop(VARIABLE, "null")) or {}  # Any: JSON
        if told:
            config, who = TelemetryConfig(**told["config"]), str(getattr(worker, "worker_name", "worker"))
            self._telemetry = Telemetry(config, Path(told["run_dir"]), who=who, quiet=told["quiet"])

    def end_worker(self, worker: object) -> None:
        """Sends what is waiting."""
        telemetry, self._telemetry = self._telemetry, None
        if telemetry is not None:
            telemetry.close()


def _outlet(config: TelemetryConfig, path: Path, *, quiet: bool) -> FileSpans | CollectorSpans:
    if config.spans == "file":
        return FileSpans(path)
    return CollectorSpans(traces_url(config.endpoint), quiet=quiet)


def _attach(config: TelemetryConfig, who: str) -> None:
    """Gives this process a provider, unless the user's own program has set one."""
    trace: Any = importlib.import_module("opentelemetry.trace")  # Any: an extra
    sdk: Any = importlib.import_module("opentelemetry.sdk.trace")  # Any: an extra
    sampling: Any = importlib.import_module("opentelemetry.sdk.trace.sampling")  # Any: an extra
    resources: Any = importlib.import_module("opentelemetry.sdk.resources")  # Any: an extra
    provider = trace.get_tracer_provider()
    if not isinstance(provider, sdk.TracerProvider):
        named = resources.Resource.create({"service.name": config.service_name, "service.instance.id": who})
        sampler = sampling.ParentBased(sampling.TraceIdRatioBased(config.sampled_share))
        provider = sdk.TracerProvider(resource=named, sampler=sampler)
        trace.set_tracer_provider(provider)
    if _OUTLETS not in provider._active_span_processor._span_processors:
        provider.add_span_processor(_OUTLETS)
