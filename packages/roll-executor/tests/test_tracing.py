"""Calls as spans, when OpenTelemetry is installed."""

import subprocess
import sys

CODE = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from roll_executor import Cluster, WorkerConfig, WorkerError
from roll_executor.testing import ContractWorker
from roll_resources import ResourceManager

kept = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)
with ResourceManager(runtime="local") as manager:
    with Cluster("c", ContractWorker, manager, WorkerConfig(world_size=2)) as cluster:
        cluster.double([1, 2])
        try:
            cluster.fail(0)
        except WorkerError:
            pass
spans = {span.name: span for span in kept.get_finished_spans()}
expected = {f"{who}.{method}" for who in ("c", "c-0", "c-1") for method in ("double", "fail")}
assert set(spans) == expected, sorted(spans)
for name, span in spans.items():
    driver = spans["c." + name.partition(".")[2]]
    assert span.context.trace_id == driver.context.trace_id
    assert span is driver or span.parent.span_id == driver.context.span_id
failed = {name for name, span in spans.items() if span.status.status_code.name == "ERROR"}
assert failed == {"c.fail", "c-0.fail"}, failed
"""


def test_spans_of_workers_continue_the_span_of_the_call() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True)


def test_without_opentelemetry_a_call_carries_no_context() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from roll_executor.tracing import CallSpan\n"
        "span = CallSpan('c', 'm', num_ranks=1); span.end(failed=True); print(span.context)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "{}\n"
