"""Runs that are killed at any moment, in any process, resume with the numbers of one that was not."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from roll_pipelines.tracking import read_metrics

MODULE = '''
import os
import threading
from dataclasses import dataclass, field

import torch

from roll_dispatch import Dispatch, register
from roll_executor import Worker
from roll_pipelines import BaseConfig, BasePipeline, WorkerConfig
from roll_protocol import DataProto


@dataclass
class SumConfig(BaseConfig):
    adder: WorkerConfig = field(default_factory=lambda: WorkerConfig(worker_cls="sums.Adder"))
    stop_at: int = -1
    stop_in: str = "add"


def stop(config, step, place):
    """Tells the test that the moment has come, and waits to be killed."""
    if step == config.stop_at and place == config.stop_in:
        with open(os.path.join(os.path.dirname(config.output_dir), "ready"), "w") as file:
            file.write(str(os.getpid()))
        threading.Event().wait(120)


class Adder(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config):
        super().initialize(pipeline_config)
        self.weight = torch.zeros(3)
        self.generator = torch.Generator().manual_seed(pipeline_config.seed + self.rank)

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def add(self, data: DataProto, step: int) -> DataProto:
        if self.rank == 0:
            stop(self.pipeline_config, step, "add")
        self.weight = 0.9 * self.weight + data.batch["x"].sum(0) + torch.randn(3, generator=self.generator)
        return DataProto.from_single_dict({"norm": self.weight.norm().repeat(len(data))})

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def do_checkpoint(self, global_step, checkpoint_dir):
        os.makedirs(checkpoint_dir, exist_ok=True)
        torch.save([self.weight, self.generator.get_state()], os.path.join(checkpoint_dir, f"{self.rank}.pt"))
        if self.rank == 0:
            stop(self.pipeline_config, global_step, "checkpoint")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(self, checkpoint_dir):
        self.weight, state = torch.load(os.path.join(checkpoint_dir, f"{self.rank}.pt"))
        self.generator.set_state(state)


class Sums(BasePipeline):
    def __init__(self, pipeline_config: SumConfig):
        super().__init__(pipeline_config)
        role = pipeline_config.adder
        self.adder = self.create_clusters_parallel([("adder", role.name, role.worker_cls, role)])["adder"]
        self.adder.initialize(pipeline_config=pipeline_config)
        self.set_checkpoint_clusters(self.adder)

    def run(self):
        for step in self.steps():
            answer = self.adder.add(DataProto.from_single_dict({"x": torch.randn(4, 3)}), step)
            self.end_step(step, {"norm": answer.batch["norm"].sum()})
'''

YAML = """\
pipeline_cls: sums.Sums
max_steps: 6
save_steps: 2
track_with: jsonl
adder: {world_size: 2}
"""

pytestmark = pytest.mark.timeout(900)

SCRIPT = "from roll_pipelines.cli import main; main()"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a pipeline, its YAML, and a run that was never stopped."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "sums.py").write_text(MODULE)
    (folder / "sums.yaml").write_text(YAML)
    assert roll(folder, "run", "sums.yaml", "runtime=local", f"output_dir={folder}/straight").returncode == 0
    return folder


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", SCRIPT, *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "RAY_AUTH_MODE": "disabled", "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}


def roll(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(),
        text=True,
        capture_output=True,
        timeout=600,
        check=False,
    )


@contextlib.contextmanager
def stopped_run(folder: Path, name: str, *settings: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """Gives a run that waits in the step that was asked for, and the process that waits in it."""
    (folder / name).mkdir()
    arguments = command("run", "sums.yaml", f"output_dir={folder}/{name}/run", "stop_at=3", *settings)
    ready = folder / name / "ready"
    with subprocess.Popen(
        arguments, cwd=folder, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            wait_for(ready, process)
            yield process, int(ready.read_text())
        finally:
            process.kill()


def wait_for(path: Path, process: "subprocess.Popen[str]") -> None:
    """Returns when a file has contents; the process that writes it must be alive meanwhile."""
    while not (path.exists() and path.read_text()):
        assert process.poll() is None, process.stdout.read() if process.stdout else ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)


def norms(run_dir: Path) -> list[tuple[float | None, float | None]]:
    return [(row["step"], row["norm"]) for row in read_metrics(run_dir / "metrics.jsonl")]


def resumes_exactly(folder: Path, name: str, *settings: str) -> None:
    done = roll(folder, "resume", f"{folder}/{name}/run", "stop_at=-1", *settings)

    assert done.returncode == 0, done.stderr
    assert norms(folder / name / "run") == norms(folder / "straight")
    wanted = folder / "straight" / "checkpoints" / "checkpoint-5" / "adder"
    found = folder / name / "run" / "checkpoints" / "checkpoint-5" / "adder"
    for rank in ("0.pt", "1.pt"):
        assert (found / rank).read_bytes() == (wanted / rank).read_bytes()


@pytest.mark.parametrize("place", ["add", "checkpoint"])
def test_a_killed_driver_resumes_exactly(folder: Path, place: str) -> None:
    with stopped_run(folder, f"driver-{place}", "runtime=local", f"stop_in={place}") as (process, _):
        process.send_signal(signal.SIGKILL)
        process.wait(30)

    left = {path.name for path in (folder / f"driver-{place}" / "run" / "checkpoints").iterdir()}
    assert left == {"checkpoint-1", "latest"} | ({".staging-3"} if place == "checkpoint" else set())
    resumes_exactly(folder, f"driver-{place}", "runtime=local")


@pytest.mark.ray
def test_a_killed_worker_ends_the_run_at_once_and_it_resumes_exactly(folder: Path) -> None:
    with stopped_run(folder, "worker") as (process, worker):
        os.kill(worker, signal.SIGKILL)
        output, _ = process.communicate(timeout=120)

    assert process.returncode == 1
    assert "adder-0" in output
    assert "roll resume" in output
    assert json.loads((folder / "worker" / "run" / "summary.json").read_text())["status"] == "failed"
    resumes_exactly(folder, "worker", "runtime=local")


@pytest.mark.ray
def test_a_killed_ray_ends_the_run_and_it_resumes_exactly(folder: Path) -> None:
    with stopped_run(folder, "ray", "stop_in=checkpoint") as (process, worker):
        parents = psutil.Process(worker).parents()
        raylet = next(parent for parent in parents if "raylet" in parent.name())
        raylet.kill()
        process.communicate(timeout=120)

    assert process.returncode != 0
    resumes_exactly(folder, "ray", "runtime=local")
