"""Spans of a whole run, as a collector that speaks OTLP receives them, and a run whose collector is gone."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import Tracer

from roll_pipelines import BaseConfig
from roll_pipelines.config import ConfigError, TelemetryConfig
from roll_pipelines.config.load import check_config
from roll_pipelines.span_collector import LAST_S, CollectorSpans, traces_url

MODULE = """
from dataclasses import dataclass, field
from roll_dispatch import Dispatch, register
from roll_executor import Worker
from roll_pipelines import BaseConfig, BasePipeline, WorkerConfig

class Doubler(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def double(self, number):
        return 2 * number

@dataclass
class DoubleConfig(BaseConfig):
    doubler: WorkerConfig = field(default_factory=lambda: WorkerConfig(worker_cls=Doubler, world_size=1))

class Doubles(BasePipeline):
    def __init__(self, pipeline_config: DoubleConfig):
        super().__init__(pipeline_config)
        role = pipeline_config.doubler
        specs = [("doubler", None, role.worker_cls, role)]
        self.doubler = self.create_clusters_parallel(specs)["doubler"]

    def run(self):
        for step in self.steps():
            self.end_step(step, {"twice": self.doubler.double(step)[0]})
"""
YAML = """
pipeline_cls: users_doubles.Doubles
output_dir: out
max_steps: 2
track_with: [jsonl]
telemetry: {spans: otlp, service_name: doubles}
"""


@dataclass
class Received:
    """What a collector was sent."""

    url: str = ""
    paths: set[str] = field(default_factory=set)
    spans: dict[str, dict[str, list[Span]]] = field(default_factory=dict)
    """By process, then by name."""
    services: set[str] = field(default_factory=set)

    def add(self, body: bytes) -> None:
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            told = {entry.key: entry.value.string_value for entry in group.resource.attributes}
            self.services.add(told["service.name"])
            process = self.spans.setdefault(told["service.instance.id"], {})
            for scope in group.scope_spans:
                for span in scope.spans:
                    process.setdefault(span.name, []).append(span)


@contextmanager
def collector(*, status: int = 200, port: int = 0) -> Iterator[Received]:
    """Runs a collector that answers every request with a status."""
    received, lock = Received(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the server looks for this name
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                received.paths.add(self.path)
                received.add(body)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        received.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield received
        server.shutdown()
        thread.join()


def roll_run(directory: Path, *overrides: str) -> str:
    """Runs the pipeline as a user would and returns what it wrote."""
    (directory / "users_doubles.py").write_text(MODULE)
    (directory / "doubles.yaml").write_text(YAML)
    code = "import sys; from roll_pipelines.cli import main; sys.exit(main())"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "doubles.yaml", *overrides],
        cwd=directory,
        env={**kept, "NO_PROXY": "*"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.ray
def test_a_collector_receives_the_spans_of_driver_and_worker_in_one_trace_a_step(tmp_path: Path) -> None:
    with collector() as received:
        said = roll_run(tmp_path, f"telemetry.endpoint={received.url}")

    assert "does not take spans" not in said
    assert (received.services, received.paths) == ({"doubles"}, {"/v1/traces"})
    assert set(received.spans) == {"driver", "doubler-0"}
    driver, worker = received.spans["driver"], received.spans["doubler-0"]
    steps = [driver["step 0"][0], driver["step 1"][0]]
    calls, parts = driver["doubler.double"], worker["doubler-0.double"]
    assert [call.parent_span_id for call in calls] == [step.span_id for step in steps]
    assert [part.parent_span_id for part in parts] == [call.span_id for call in calls]
    assert [span.trace_id for span in calls + parts] == 2 * [step.trace_id for step in steps]
    assert steps[0].trace_id != steps[1].trace_id


@pytest.mark.ray
def test_a_run_whose_collector_is_gone_says_so_once_and_goes_on(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    endpoint = f"telemetry.endpoint=http://127.0.0.1:{port}"
    said = roll_run(tmp_path, endpoint)
    assert said.count("does not take spans") == 1
    assert f"http://127.0.0.1:{port}/v1/traces" in said
    assert "exporting" not in said.replace("encountered while exporting", "", 1)


@contextmanager
def sending_to(url: str, *, retry_s: float = 5.0) -> Iterator[tuple[CollectorSpans, Tracer]]:
    """Sends the spans of a tracer of its own to a collector."""
    spans = CollectorSpans(traces_url(url), retry_s=retry_s)
    resource = Resource({"service.name": "alone", "service.instance.id": "driver"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(cast("SpanProcessor", spans))
    yield spans, provider.get_tracer("test")
    provider.shutdown()


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns every line that was written about a collector."""
    return [record.getMessage() for record in caplog.records]


def test_a_collector_that_never_answers_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with sending_to(f"http://127.0.0.1:{silent.getsockname()[1]}") as (_, tracer):
            tracer.start_span("lost").end()
        assert time.monotonic() - began < LAST_S + 3.0
    assert [line.count("within 2 s") for line in complaints(caplog)] == [1]


def test_a_collector_that_refuses_spans_is_named_with_what_it_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with collector(status=404) as received, sending_to(received.url) as (spans, tracer):
        assert not spans.answers(60.0)
        tracer.start_span("lost").end()
        assert not spans.force_flush()
    (line,) = complaints(caplog)
    assert received.url in line
    assert "404" in line


def test_a_collector_that_comes_late_gets_what_has_waited(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with sending_to(f"http://127.0.0.1:{port}", retry_s=0.01) as (spans, tracer):
        assert not spans.answers(60.0)
        for number in range(3):
            tracer.start_span(f"span {number}").end()
        with collector(port=port) as received:
            while not spans.answers(60.0):
                threading.Event().wait(0.01)
            assert spans.force_flush()
    assert list(received.spans["driver"]) == ["span 0", "span 1", "span 2"]
    assert len(complaints(caplog)) == 1


def test_an_address_gets_the_path_of_traces_unless_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert traces_url("http://collector:4318") == "http://collector:4318/v1/traces"
    assert traces_url("https://collector/") == "https://collector/v1/traces"
    assert traces_url("https://collector/otlp/v1/traces") == "https://collector/otlp/v1/traces"
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    assert traces_url(None) == "http://localhost:4318/v1/traces"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://there:1/base/")
    assert traces_url(None) == "http://there:1/base/v1/traces"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://here:2/mine")
    assert traces_url(None) == "http://here:2/mine"


def test_an_address_of_another_protocol_is_refused() -> None:
    with pytest.raises(ConfigError, match="OTLP over HTTP, not gRPC"):
        check_config(BaseConfig(telemetry=TelemetryConfig(spans="otlp", endpoint="collector:4317")))
