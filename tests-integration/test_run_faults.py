"""Runs that are killed at any moment, in any process, resume with the numbers of one that was not."""

import json
from collections.abc import Iterator
from pathlib import Path

import forks
import pytest
import runs

pytestmark = pytest.mark.timeout(900)

MODULE = '''
import os
import signal
import time

import psutil

from roll_dispatch import Dispatch, register
from roll_pipelines.distill.worker import StudentWorker
from roll_pipelines.dpo.worker import PreferenceWorker
from roll_pipelines.workers import ActorWorker, SFTWorker


def kill(victim):
    """Kills this worker, or a process above it, and never comes back."""
    worker = psutil.Process()
    parents = worker.parents()
    raylet = next((process for process in parents if "raylet" in process.name()), None)
    driver = raylet.parent() if raylet else None
    family = {"worker": worker, "raylet": raylet, "driver": driver}
    family["gcs"] = next((p for p in driver.children() if "gcs_server" in p.name()), None) if driver else None
    family[victim].send_signal(signal.SIGKILL)
    time.sleep(600)


class Mortal:
    """Ends somebody after the optimizer step that is one too many, or when its checkpoint is half written."""

    learnt = 0

    def moment(self, place):
        wanted = self.pipeline_config.variables
        if wanted.get("kill") and wanted["at"] == place and self.learnt == 4:
            kill(wanted["kill"])

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False, prefetch=True)
    def train_step(self, rows):
        trained = super().train_step(rows)
        self.learnt += 1
        self.moment("step")
        return trained

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def do_checkpoint(self, global_step, checkpoint_dir):
        written = super().do_checkpoint(global_step, checkpoint_dir)
        self.moment("checkpoint")
        return written


class SFT(Mortal, SFTWorker):
    pass


class Preference(Mortal, PreferenceWorker):
    pass


class Student(Mortal, StudentWorker):
    pass


class Actor(Mortal, ActorWorker):
    pass
'''

SMALL = (
    "max_steps=6",
    "save_steps=2",
    "eval_steps=3",
    "track_with=jsonl",
    "task.num_held_out=8",
    "tiny_model={alphabet: 'abcdefghijklmnopqrstuvwxyz=', hidden_size: 16, num_layers: 1}",
)
"""Few steps of small models; the checkpoint after step 3 is the one that is not finished."""
PIPELINES = {
    "sft": ("sft_train", "SFT", ("num_problems=64", "sft_train.world_size=1")),
    "dpo": ("actor_train", "Preference", ("num_problems=64",)),
    "distill": ("student", "Student", ("num_problems=64", "warm_up.steps=2")),
    "rlvr": (
        "actor_train",
        "Actor",
        (
            "warm_up.steps=0",
            "rollout_batch_size=4",
            "actor_train.world_size=1",
            "actor_infer.generating_args.num_return_sequences=4",
            "validation.num_samples=1",
        ),
    ),
}
"""Of each synchronous pipeline the role that learns, its worker here, and what makes a run short."""


class Runs:
    """Runs of one pipeline in one folder."""

    def __init__(self, folder: Path, starter: forks.Forks, pipeline: str) -> None:
        self.folder, self._starter, self.pipeline = folder, starter, pipeline
        self.role, worker, settings = PIPELINES[pipeline]
        batch = f"{self.role}.training_args.per_device_train_batch_size=8"
        self.settings = (*SMALL, *settings, batch, f"{self.role}.worker_cls=mortal.{worker}")

    def directory(self, name: str) -> Path:
        return self.folder / f"{self.pipeline}-{name}"

    def local(self, verb: str, target: Path, *settings: str) -> tuple[int, str]:
        """Runs in one process and returns how it ended and what it said."""
        output = self.folder / "output.txt"
        output.unlink(missing_ok=True)
        code = self._starter.run(
            verb, str(target), "runtime=local", *settings, cwd=self.folder, output=output
        )
        return code, output.read_text()

    def straight(self) -> Path:
        """Returns the directory of a run that was never stopped."""
        directory = self.directory("straight")
        if not directory.exists():
            code, output = self.local("run", self.example(), f"output_dir={directory}", *self.settings)
            assert code == 0, output
        return directory

    def example(self) -> Path:
        return Path(runs.EXAMPLES / f"{self.pipeline}_tiny.yaml")

    def resumes_exactly(self, name: str) -> None:
        """Asserts that a stopped run, resumed in one process, ends as the one that was never stopped."""
        directory, straight = self.directory(name), self.straight()
        code, output = self.local("resume", directory, "variables.kill=null")
        assert code == 0, output
        found, wanted = (runs.Finished(path, 0, "") for path in (directory, straight))
        assert [row["step"] for row in found.metrics()] == list(range(6))
        assert found.untimed() == wanted.untimed()
        weights = f"checkpoints/checkpoint-5/{self.role}/model.safetensors"
        assert (directory / weights).read_bytes() == (straight / weights).read_bytes()
        measured = {k: v for k, v in wanted.summary().items() if k not in ("seconds", "exp_name")}
        assert {k: v for k, v in found.summary().items() if k in measured} == measured


@pytest.fixture(scope="module")
def starter() -> Iterator[forks.Forks]:
    with forks.open_forks(runs.environment()) as opened:
        yield opened


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "mortal.py").write_text(MODULE)
    return folder


@pytest.mark.parametrize("place", ["step", "checkpoint"])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_run_that_is_killed_resumes_exactly(
    folder: Path, starter: forks.Forks, pipeline: str, place: str
) -> None:
    killed = Runs(folder, starter, pipeline)
    directory = killed.directory(place)
    moment = f"variables={{kill: worker, at: {place}}}"
    code, output = killed.local("run", killed.example(), f"output_dir={directory}", moment, *killed.settings)

    assert code == -9, output
    left = {path.name for path in (directory / "checkpoints").iterdir()}
    assert left == {"checkpoint-1", "latest"} | ({".staging-3"} if place == "checkpoint" else set())
    killed.resumes_exactly(place)


@pytest.mark.ray
@pytest.mark.parametrize(
    ("pipeline", "victim", "place"),
    [
        ("sft", "worker", "step"),
        ("dpo", "raylet", "checkpoint"),
        ("distill", "gcs", "step"),
        ("rlvr", "driver", "checkpoint"),
    ],
)
def test_whatever_process_of_ray_is_killed_the_run_ends_and_resumes_exactly(
    folder: Path, starter: forks.Forks, pipeline: str, victim: str, place: str
) -> None:
    killed = Runs(folder, starter, pipeline)
    directory = killed.directory(victim)
    moment = f"variables={{kill: {victim}, at: {place}}}"
    ended = runs.run("run", killed.example(), directory, moment, *killed.settings, timeout_s=180)

    assert ended.code == (-9 if victim == "driver" else 1), ended.output[-4000:]
    if victim != "driver":
        assert "roll resume" in ended.output
        assert json.loads((directory / "summary.json").read_text())["status"] == "failed"
    assert runs.alive(directory) == []
    killed.resumes_exactly(victim)
