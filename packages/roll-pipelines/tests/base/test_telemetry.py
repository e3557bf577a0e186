"""Spans of a run: steps, the calls in them, and the workers' parts of those."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from roll_pipelines import BaseConfig
from roll_pipelines.config import ConfigError, TelemetryConfig
from roll_pipelines.config.load import check_config

CODE = """
import json, sys
from roll_dispatch import Dispatch, register
from roll_executor import Worker
from roll_pipelines import BaseConfig, BasePipeline, WorkerConfig
from roll_pipelines.config import TelemetryConfig

class Doubler(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def double(self, number):
        return 2 * number

def run(directory):
    telemetry = TelemetryConfig(spans="file")
    config = BaseConfig(
        runtime=sys.argv[2], output_dir=directory, track_with=[], max_steps=2, telemetry=telemetry
    )
    with BasePipeline(config) as pipeline:
        role = WorkerConfig(name="doubler", world_size=1)
        cluster = pipeline.create_clusters_parallel([("doubler", None, Doubler, role)])["doubler"]
        cluster.double(0)
        for step in pipeline.steps():
            cluster.double(step)
            pipeline.end_step(step, {})
        assert role.system_envs == {}

if __name__ == "__main__":
    run(sys.argv[1] + "/first")
    if sys.argv[2] == "local":
        run(sys.argv[1] + "/second")
"""


def spans_of(directory: Path, name: str) -> dict[str, list[dict[str, object]]]:
    """Returns the spans that one process wrote, by name."""
    found: dict[str, list[dict[str, object]]] = {}
    for line in (directory / "spans" / f"{name}.jsonl").read_text().splitlines():
        span = json.loads(line)
        found.setdefault(span["name"], []).append(span)
    return found


@pytest.mark.parametrize("runtime", ["local", pytest.param("ray", marks=pytest.mark.ray)])
def test_every_step_holds_its_calls_and_every_call_the_workers_part_of_it(
    tmp_path: Path, runtime: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(CODE)
    subprocess.run([sys.executable, str(program), str(tmp_path), runtime], check=True)

    for run in ("first", "second") if runtime == "local" else ("first",):
        driver = spans_of(tmp_path / run, "driver")
        worker = driver if runtime == "local" else spans_of(tmp_path / run, "doubler-0")
        steps = [driver[f"step {number}"][0]["span"] for number in range(2)]
        calls = driver["doubler.double"]
        assert [call["parent"] for call in calls] == [None, *steps]
        assert [part["parent"] for part in worker["doubler-0.double"]] == [call["span"] for call in calls]
        assert not any(span["failed"] for spans in driver.values() for span in spans)


def test_a_run_without_telemetry_writes_no_spans(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(CODE.replace('spans="file"', "spans=None"))
    subprocess.run([sys.executable, str(program), str(tmp_path), "local"], check=True)
    assert not list(tmp_path.rglob("spans"))


def test_an_impossible_share_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        check_config(BaseConfig(telemetry=TelemetryConfig(spans="otlp", sampled_share=2.0)))
    text = str(refused.value)
    assert "telemetry.sampled_share" in text
    assert "roll-pipelines[telemetry]" not in text


def test_a_missing_exporter_is_refused_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp", None)
    with pytest.raises(ConfigError, match=r"roll-pipelines\[telemetry\]"):
        check_config(BaseConfig(telemetry=TelemetryConfig(spans="otlp")))
    check_config(BaseConfig(telemetry=TelemetryConfig(spans="file")))
