"""The package `my_package` of the seed guide: its blocks as printed, after a prelude of open names."""

from collections.abc import Mapping
from pathlib import Path

WORKER_PRELUDE = """
import torch

from roll.distributed.executor.worker import Worker
from roll.distributed.scheduler.decorator import Dispatch, register
from roll.distributed.scheduler.protocol import DataProto
from roll.platforms import current_platform

my_model_provider = None


def custom_business_logic(data):
    data.batch["doubled"] = 2 * data.batch["input"]
    return data


def build_processor(worker_config):
    return custom_business_logic
"""
"""Names that the guide's worker blocks use and do not define."""

WORKER_ENDING = """
class StudentWorker(CustomTrainWorker):
    def loss_func(self, data, output_tensor):
        return self.strategy.op_compute_language_loss(output_tensor, data.batch["labels"])


class TeacherWorker(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config):
        super().initialize(pipeline_config)
        self.start_strategy()

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def generate(self, data: DataProto):
        answers = self.strategy.generate(data, {"max_new_tokens": 2})
        rows = torch.cat([data.batch["input_ids"], answers.batch["responses"]], dim=1)
        ends = torch.full_like(rows[:, :1], -100)
        labels = torch.cat([rows[:, 1:], ends], dim=1)
        return DataProto.from_single_dict(
            {"input_ids": rows, "attention_mask": torch.ones_like(rows), "labels": labels}
        )
"""
"""What the guide leaves to its reader: a loss, and a teacher that answers."""

PIPELINE_ENDING = """
class RunningPipeline(CustomPipeline):
    config_cls = CustomPipelineConfig

    def __init__(self, pipeline_config):
        super().__init__(pipeline_config)
        roles = {"student": pipeline_config.student, "teacher": pipeline_config.teacher}
        clusters = self.create_clusters_parallel([(k, r.name, r.worker_cls, r) for k, r in roles.items()])
        self.student, self.teacher = clusters["student"], clusters["teacher"]
        for cluster in clusters.values():
            cluster.initialize(pipeline_config=pipeline_config)
        self.set_model_update_pair(self.student, self.teacher)
        self.set_checkpoint_clusters(self.student)

    def run(self):
        import torch

        from roll.distributed.scheduler.protocol import DataProto

        for step in self.steps():
            self.model_update(step)
            batch = DataProto.from_single_dict({"input_ids": torch.arange(8).reshape(8, 1)})
            batch.meta_info = {"loss_mask_keys": ["labels"]}
            rows = self.teacher.generate(batch)
            rows.meta_info = {"loss_mask_keys": ["labels"]}
            answer = self.student.train_step(rows)
            self.end_step(step, {"ranks": float(len(answer.meta_info["metrics"]) > 0)})
"""
"""A loop for the `CustomPipeline` of the guide, whose own `run` does nothing."""

TRANSFORM_ENDING = """

from dataclasses import dataclass, field

import torch

from roll.configs.base_config import BaseConfig
from roll.configs.worker_config import WorkerConfig


@dataclass
class TransformConfig(BaseConfig):
    transform: WorkerConfig = field(default_factory=WorkerConfig)

    def __post_init__(self):
        super().__post_init__()
        if self.transform.worker_cls is None:
            self.transform.worker_cls = TransformWorker


def build_batches(self):
    self.outputs = []
    for start in range(3):
        yield DataProto.from_single_dict({"input": torch.arange(start, start + 4)})


def consume(self, output):
    self.outputs.append(output.batch["output"].tolist())


TransformPipeline.build_batches = build_batches
TransformPipeline.consume = consume
"""
"""What the minimal pipeline leaves open: its configuration, where batches come from and go to."""


def write_package(folder: Path, printed: Mapping[str, str]) -> None:
    """Writes `my_package` with the guide's blocks as they are printed.

    Args:
        folder: where the package shall stand.
        printed: the joined blocks of `worker`, `pipeline` and `transform`.
    """
    package = folder / "my_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "worker.py").write_text(WORKER_PRELUDE + "\n\n" + printed["worker"] + "\n\n" + WORKER_ENDING)
    (package / "pipeline.py").write_text(printed["pipeline"] + "\n\n" + PIPELINE_ENDING)
    (package / "transform.py").write_text(printed["transform"] + TRANSFORM_ENDING)
