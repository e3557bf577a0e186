"""The configuration of supervised fine-tuning."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from roll_pipelines.config import BaseConfig, WorkerConfig
from roll_pipelines.config.problems import Problem
from roll_pipelines.data.model_source import model_problems
from roll_pipelines.data.problems import TaskConfig
from roll_pipelines.data.row_problems import row_problems
from roll_pipelines.data.tiny_model import TinyModelConfig


@dataclass
class SFTConfig(BaseConfig):
    """Learn the answers in files, or those of generated problems."""

    sft_train: WorkerConfig = field(default_factory=WorkerConfig)
    """The role that learns; `data_args.file_name` names its rows."""
    validation_files: list[str] = field(default_factory=list)
    """Files with rows that are scored and never learnt."""
    tiny_model: TinyModelConfig | None = None
    """Build a small model in code, instead of `pretrain`."""
    task: TaskConfig | None = None
    """Learn the answers of generated problems, instead of files; the held-out ones are scored."""
    num_problems: int = 4096
    """Generated problems to learn from."""

    def __post_init__(self) -> None:
        """Fills the worker's class."""
        super().__post_init__()
        if self.sft_train.worker_cls is None:
            self.sft_train.worker_cls = "roll_pipelines.workers.SFTWorker"

    def problems(self) -> Iterator[Problem]:
        """Yields what is wrong beyond the types of the fields."""
        yield from super().problems()
        yield from model_problems(self)
        yield from row_problems(
            self.sft_train.data_args, role="sft_train", task=self.task, validation_files=self.validation_files
        )
        if self.task is not None and self.num_problems < 1:
            yield Problem(path="num_problems", rule="must be at least 1", value=self.num_problems)
        if self.sequence_length is None:
            rule = "must be given: it bounds prompt and answer together"
            yield Problem(path="sequence_length", rule=rule, value=None, hint="sequence_length: 1024")
        if self.sft_train.training_args.num_train_epochs <= 0:
            value = self.sft_train.training_args.num_train_epochs
            yield Problem(
                path="sft_train.training_args.num_train_epochs", rule="must be above 0", value=value
            )

    def batch_size(self) -> int:
        """Returns the rows of one optimizer step over all workers."""
        return rows_per_step(self.sft_train)


def rows_per_step(role: WorkerConfig) -> int:
    """Returns the rows of one optimizer step of a role: workers x accumulation x rows of a micro-batch.

    Args:
        role: the configuration of a role that trains, all of its workers data parallel.

    Example:
        >>> from roll_pipelines.config.arguments import TrainingArguments
        >>> training = TrainingArguments(per_device_train_batch_size=4)
        >>> rows_per_step(WorkerConfig(world_size=2, training_args=training))
        8
    """
    training = role.training_args
    return (
        (role.world_size or 1) * training.per_device_train_batch_size * training.gradient_accumulation_steps
    )


def end_after_epochs(config: BaseConfig, role: WorkerConfig, *, rows: int) -> None:
    """Ends a run after the configured passes over its rows, or earlier at `max_steps`.

    Args:
        config: its `max_steps` is lowered to what the passes need.
        role: the role that learns; its `max_steps` is filled if it has none.
        rows: how many there are to learn from.
    """
    training = role.training_args
    in_epochs = math.ceil(training.num_train_epochs * rows / rows_per_step(role))
    config.max_steps = min(config.max_steps, max(1, in_epochs))
    if training.max_steps is None:
        training.max_steps = config.max_steps
