"""What every pipeline gets from its base, with workers in this process."""

import json
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import fsspec  # type: ignore[import-untyped]  # fsspec ships no types
import numpy as np
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]  # as above

from roll_dispatch import Dispatch, register
from roll_executor import Worker, WorkerStartError
from roll_pipelines import BaseConfig, BasePipeline, ConfigError, WorkerConfig
from roll_pipelines.config import CheckpointConfig
from roll_pipelines.random_state import load_random_state, save_random_state, seed_everything


@dataclass
class TwoRoles(BaseConfig):
    source: WorkerConfig = field(default_factory=WorkerConfig)
    target: WorkerConfig = field(default_factory=WorkerConfig)


class Source(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config: BaseConfig) -> None:
        super().initialize(pipeline_config)
        self.transports: dict[str, object] = {}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def setup_model_update(self, name: str, transport: object) -> None:
        self.transports[name] = transport

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def start_model_update(self, name: str, version: int) -> dict[str, float]:
        transport = self.transports[name]
        if self.rank == 0:
            transport.send("take", version).result(10.0)  # type: ignore[attr-defined]  # a Transport
        return {"bytes": 100.0 * (self.rank == 0), "rank": float(self.rank)}


class Target(Worker):
    version, ready = -1, -1

    def take(self, version: int) -> int:
        self.version = version
        return version

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def process_weights_after_loading(self) -> None:
        self.ready = self.version

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def tell(self) -> int:
        return self.ready


class Broken(Worker):
    def __init__(self, worker_config: WorkerConfig) -> None:
        raise RuntimeError("cannot be built")


def make(tmp_path: Path, **changes: object) -> TwoRoles:
    settings = {
        "runtime": "local",
        "output_dir": str(tmp_path / "run"),
        "track_with": ["jsonl"],
        "max_steps": 5,
    }
    settings |= {"save_steps": 2, "source": WorkerConfig(world_size=2), "target": WorkerConfig(world_size=3)}
    return TwoRoles(**{**settings, **changes})  # type: ignore[arg-type]  # each test's own settings


def roles(
    pipeline: BasePipeline, source: type = Source, target: type = Target
) -> list[tuple[str, str, type, WorkerConfig]]:
    config = pipeline.pipeline_config
    assert isinstance(config, TwoRoles)
    return [("source", "source", source, config.source), ("target", "target", target, config.target)]


def test_roles_are_created_at_once_and_closed_with_the_pipeline(tmp_path: Path) -> None:
    with BasePipeline(make(tmp_path)) as pipeline:
        clusters = pipeline.create_clusters_parallel(roles(pipeline))
        assert {key: cluster.world_size for key, cluster in clusters.items()} == {"source": 2, "target": 3}

    with pytest.raises(Exception, match="closed"):
        clusters["target"].tell()


def test_a_role_that_cannot_be_created_is_named_and_the_others_are_closed(tmp_path: Path) -> None:
    with (
        BasePipeline(make(tmp_path)) as pipeline,
        pytest.raises(WorkerStartError, match="cannot be built") as caught,
    ):
        pipeline.create_clusters_parallel(roles(pipeline, source=Broken))

    assert "while creating the cluster of role 'source'" in caught.value.__notes__


def test_a_role_without_a_worker_class_says_where_to_set_it(tmp_path: Path) -> None:
    with BasePipeline(make(tmp_path)) as pipeline, pytest.raises(ValueError, match=r"set source\.worker_cls"):
        pipeline.create_clusters_parallel([("source", "source", None, WorkerConfig())])


def test_a_call_fails_after_the_seconds_of_its_role_or_else_of_the_run(tmp_path: Path) -> None:
    own = WorkerConfig(world_size=1, timeout_s=7.0)
    with BasePipeline(make(tmp_path, rpc_timeout=90.0, target=own)) as pipeline:
        clusters = pipeline.create_clusters_parallel(roles(pipeline))
        assert {key: cluster.worker_config.timeout_s for key, cluster in clusters.items()} == {
            "source": 90.0,
            "target": 7.0,
        }


def test_weights_go_over_when_they_are_due_and_the_slowest_rank_counts(tmp_path: Path) -> None:
    with BasePipeline(make(tmp_path)) as pipeline:
        clusters = pipeline.create_clusters_parallel(roles(pipeline))
        source, target = clusters["source"], clusters["target"]
        source.initialize(pipeline_config=pipeline.pipeline_config)
        pipeline.set_model_update_pair(source, target, frequency=2)

        metrics = pipeline.model_update(0)
        assert target.tell() == [0, 0, 0]
        assert pipeline.model_update(1) == {}
        assert target.tell() == [0, 0, 0]
        pipeline.model_update(2)
        assert target.tell() == [2, 2, 2]

    assert metrics["model_update/source_2_target/bytes"] == 100.0
    assert metrics["model_update/source_2_target/rank"] == 1.0
    assert metrics["model_update/source_2_target/seconds"] > 0


def test_two_pipelines_in_one_process_share_nothing(tmp_path: Path) -> None:
    with (
        BasePipeline(make(tmp_path)) as first,
        BasePipeline(make(tmp_path, output_dir=str(tmp_path / "b"))) as second,
    ):
        clusters = first.create_clusters_parallel(roles(first))
        clusters["source"].initialize(pipeline_config=first.pipeline_config)
        first.set_model_update_pair(clusters["source"], clusters["target"])

        assert second.model_update(0) == {}


def test_a_configuration_that_breaks_rules_starts_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="max_steps"):
        BasePipeline(make(tmp_path, max_steps=0))

    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("save_steps", "saved"), [(2, [1, 3, 4]), (0, [4]), (1, [0, 1, 2, 3, 4]), (5, [4]), (9, [4])]
)
def test_checkpoints_are_written_every_save_steps_and_after_the_last_step(
    tmp_path: Path, save_steps: int, saved: list[int]
) -> None:
    with BasePipeline(make(tmp_path, save_steps=save_steps)) as pipeline:
        for step in pipeline.steps():
            pipeline.end_step(step, {})

        assert pipeline.checkpoint_store.steps() == saved


def test_state_and_random_generators_come_back_with_a_checkpoint(tmp_path: Path) -> None:
    with BasePipeline(make(tmp_path, seed=3)) as pipeline:
        pipeline.state.kv["position"] = 17
        draws: list[object] = [random.random(), np.random.rand(), torch.rand(2)]
        pipeline.end_step(0, {"loss": float(np.float32(0.5))})
        pipeline.end_step(1, {"loss": 0.25})
        draws = [random.random(), np.random.rand(), torch.rand(2).tolist()]

    with BasePipeline(make(tmp_path, resume_from_checkpoint=True)) as resumed:
        assert [random.random(), np.random.rand(), torch.rand(2).tolist()] == draws
        assert resumed.state.kv == {"position": 17}
        assert [row["loss"] for row in resumed.state.log_history] == [0.5, 0.25]
        assert list(resumed.steps()) == [2, 3, 4]


def test_metrics_are_logged_every_logging_steps_and_at_the_end(tmp_path: Path) -> None:
    with BasePipeline(make(tmp_path, logging_steps=3, max_steps=5)) as pipeline:
        for step in pipeline.steps():
            with pipeline.timed("part"):
                pass
            pipeline.end_step(step, {"loss": step})

    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["loss"]) for row in rows] == [(0, 0), (3, 3), (4, 4)]
    assert all(row["time/part"] >= 0 for row in rows)


@pytest.mark.parametrize(("eval_steps", "validated"), [(2, [0, 2, 4]), (3, [0, 3, 4]), (0, [])])
def test_validation_is_asked_for_every_eval_steps_and_at_the_end(
    tmp_path: Path, eval_steps: int, validated: list[int]
) -> None:
    with BasePipeline(make(tmp_path, eval_steps=eval_steps)) as pipeline:
        assert [step for step in pipeline.steps() if pipeline.should_validate(step)] == validated


def test_the_timeline_says_which_role_worked_when(tmp_path: Path) -> None:
    with BasePipeline(make(tmp_path, max_steps=2)) as pipeline:
        target = pipeline.create_clusters_parallel(roles(pipeline))["target"]
        for step in pipeline.steps():
            target.tell()
            pipeline.end_step(step, {})

    calls = [json.loads(line) for line in (tmp_path / "run" / "timeline.jsonl").read_text().splitlines()]
    assert [(call["step"], call["role"], call["method"]) for call in calls] == [
        (0, "target", "tell"),
        (1, "target", "tell"),
    ]
    assert all(0 <= call["start"] <= call["end"] for call in calls)
    last = pipeline.state.log_history[-1]
    assert 0 < last["time/busy_share/target"] <= 1
    assert last["time/busy_share/source"] == 0


def test_a_pipeline_without_run_says_so(tmp_path: Path) -> None:
    with BasePipeline(make(tmp_path)) as pipeline, pytest.raises(NotImplementedError, match="has no run"):
        pipeline.run()


def test_closing_twice_does_nothing_and_an_upload_that_failed_is_raised(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("a file where a directory is needed")
    config = make(tmp_path, max_steps=1)
    config.checkpoint_config.output_dir = str(tmp_path / "occupied" / "copies")
    pipeline = BasePipeline(config)
    pipeline.end_step(0, {})

    with pytest.raises(RuntimeError, match="was not copied"):
        pipeline.close()
    pipeline.close()


@pytest.mark.parametrize(
    "draw", [random.random, np.random.rand, lambda: torch.rand(1).item(), np.random.randn]
)
def test_saved_generators_go_on_where_they_were(tmp_path: Path, draw: Callable[[], float]) -> None:
    seed_everything(1)
    draw()
    save_random_state(tmp_path / "state.pt")
    expected = [draw() for _ in range(5)]
    seed_everything(2)
    load_random_state(tmp_path / "state.pt")

    assert [draw() for _ in range(5)] == expected


class Validating(BasePipeline):
    """Measures how often it was asked to."""

    asked = 0

    def validate(self) -> dict[str, float]:
        self.asked += 1
        return {"val/asked": float(self.asked)}


def test_what_a_pipeline_validates_is_logged_at_the_step_in_which_it_is_due(tmp_path: Path) -> None:
    with Validating(make(tmp_path, eval_steps=3)) as pipeline:
        for step in pipeline.steps():
            pipeline.end_step(step, {"loss": 1.0})
    rows = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert {row["step"]: row.get("val/asked") for row in rows} == {0: 1.0, 1: None, 2: None, 3: 2.0, 4: 3.0}


class SlowFileSystem(MemoryFileSystem):  # type: ignore[misc]  # fsspec ships no types
    """Takes nothing before it is told to."""

    protocol = "slow"
    store: ClassVar[dict[str, object]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    told = threading.Event()

    def put(self, *arguments: object, **options: object) -> None:
        assert self.told.wait(60)
        super().put(*arguments, **options)


def test_a_checkpoint_that_is_too_old_stays_until_its_copy_is_made(tmp_path: Path) -> None:
    fsspec.register_implementation("slow", SlowFileSystem, clobber=True)
    upload = CheckpointConfig(output_dir="slow://copies")
    with BasePipeline(make(tmp_path, max_ckpt_to_keep=1, checkpoint_config=upload)) as pipeline:
        for step in pipeline.steps():
            pipeline.end_step(step, {"loss": 1.0})
        assert pipeline.checkpoint_store.steps() == [1, 3, 4]
        SlowFileSystem.told.set()
    assert pipeline.checkpoint_store.steps() == [4]
    copies = {part for name in SlowFileSystem.store for part in name.split("/") if "checkpoint-" in part}
    assert copies == {"checkpoint-1", "checkpoint-3", "checkpoint-4"}
