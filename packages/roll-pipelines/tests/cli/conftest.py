"""A user's own pipeline in a directory of its own, and the directory as the current one."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

MODULE = """
import os
from dataclasses import dataclass, field

import torch

from roll_dispatch import Dispatch, register
from roll_executor import Cluster, Worker
from roll_pipelines import BaseConfig, BasePipeline, WorkerConfig
from roll_protocol import DataProto, DataSchema


@dataclass
class SumConfig(BaseConfig):
    adder: WorkerConfig = field(default_factory=lambda: WorkerConfig(worker_cls="users_sums.Adder"))
    fail_at: int = -1
    wait_at: int = -1


class Adder(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config):
        super().initialize(pipeline_config)
        self.total = 0.0

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def add(self, data: DataProto, step: int) -> DataProto:
        if step == self.pipeline_config.fail_at:
            raise RuntimeError("the adder broke")
        if step == self.pipeline_config.wait_at:
            print("waiting", flush=True)
            import threading

            threading.Event().wait(60)
        self.total += float(data.batch["x"].sum())
        return DataProto.from_single_dict({"total": torch.full((len(data),), self.total)})

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def do_checkpoint(self, global_step, checkpoint_dir):
        os.makedirs(checkpoint_dir, exist_ok=True)
        torch.save(self.total, os.path.join(checkpoint_dir, f"{self.rank}.pt"))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(self, checkpoint_dir):
        self.total = torch.load(os.path.join(checkpoint_dir, f"{self.rank}.pt"))


class Sums(BasePipeline):
    def __init__(self, pipeline_config: SumConfig):
        super().__init__(pipeline_config)
        role = pipeline_config.adder
        self.adder = Cluster(
            name=role.name,
            worker_cls=role.worker_cls,
            resource_manager=self.resource_manager,
            worker_config=role,
        )
        self.adder.initialize(pipeline_config=pipeline_config)
        self.set_checkpoint_clusters(self.adder)

    def run(self):
        for step in self.steps():
            with self.timed("add"):
                answer = self.adder.add(DataProto.from_single_dict({"x": torch.randn(4)}), step)
            self.end_step(step, {"total": answer.batch["total"].mean()})
        self.summary["total_before"], self.summary["total_after"] = 0.0, float(answer.batch["total"].mean())


class Declared(Sums):
    schemas = (DataSchema("load", produces={"x": "int64[]"}), DataSchema("add", needs={"x": "int64[]"}))


class Undeclared(Sums):
    schemas = (DataSchema("add", needs={"x": "int64[]"}),)


class Unfinished(BasePipeline):
    def __init__(self, pipeline_config: SumConfig):
        super().__init__(pipeline_config)
        raise RuntimeError("half-way")
"""

YAML = """\
pipeline_cls: users_sums.Sums
exp_name: sums
runtime: local
max_steps: 6
save_steps: 2
output_dir: out
track_with: [jsonl, console]
num_gpus_per_node: 2
adder:
  world_size: 2
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with `users_sums.py` and `sums.yaml` in it."""
    (tmp_path / "users_sums.py").write_text(MODULE)
    (tmp_path / "sums.yaml").write_text(YAML)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("users_sums", None)
