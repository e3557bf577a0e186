"""What proofs about pipelines have in common: a tiny run, run to its end, and what it learnt, compared."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from roll_pipelines.base import BasePipeline
from roll_pipelines.config import BaseConfig, WorkerConfig
from roll_pipelines.config.arguments import DataArguments, StrategyArguments, TrainingArguments
from roll_pipelines.data import TinyModelConfig, save_tiny_model

RATE = 0.05
"""Learning rate of `learning_role`."""
EPSILON = 1e-2
"""Of its Adam: large, so that a first step does not turn rounding of tiny gradients into their signs."""


def tiny_model(
    directory: Path, *, alphabet: str, width: int = 16, seed: int = 0, spread: float = 0.05
) -> str:
    """Returns the directory of a model of one layer, which is built on first use.

    Args:
        directory: where it is, or will be.
        alphabet: its characters.
        width: its hidden size.
        seed: of its weights.
        spread: standard deviation of its weights.
    """
    if not directory.exists():
        sizes = TinyModelConfig(
            alphabet=alphabet, hidden_size=width, num_layers=1, max_positions=64, initializer_range=spread
        )
        save_tiny_model(directory, sizes, seed=seed)
    return str(directory)


def rows_file(file: Path, rows: Iterable[Mapping[str, object]]) -> str:
    """Writes rows as lines of JSON, and returns the file's name.

    Args:
        file: is written over.
        rows: objects of JSON.
    """
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(file)


def learning_role(file: str, *, micro: int, accumulation: int = 1, workers: int = 1) -> WorkerConfig:
    """Returns a role that learns rows by `fsdp2_train`, as plain AdamW with `RATE` and `EPSILON` does.

    Args:
        file: of the rows.
        micro: rows of a micro-batch of one worker.
        accumulation: micro-batches of a step.
        workers: how many there are.
    """
    return WorkerConfig(
        world_size=workers,
        strategy_args=StrategyArguments(strategy_name="fsdp2_train"),
        training_args=TrainingArguments(
            learning_rate=RATE,
            adam_epsilon=EPSILON,
            per_device_train_batch_size=micro,
            gradient_accumulation_steps=accumulation,
            max_grad_norm=None,
            num_train_epochs=100,
        ),
        data_args=DataArguments(file_name=file),
        infer_batch_size=4,
    )


def run_to_end(pipeline_cls: type[BasePipeline], config: BaseConfig) -> list[dict[str, float]]:
    """Runs a configuration and returns the metrics of its steps, without times.

    Args:
        pipeline_cls: the pipeline.
        config: its configuration.
    """
    with pipeline_cls(config) as pipeline:
        pipeline.run()
        history = pipeline.state.log_history
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in history]


def last_checkpoint(config: BaseConfig, role: str) -> Path:
    """Returns the directory of a role in the checkpoint of a run's last step.

    Args:
        config: of a run that has ended.
        role: the name of the role's cluster.
    """
    return Path(config.output_dir) / "checkpoints" / f"checkpoint-{config.max_steps - 1}" / role


def learnt(config: BaseConfig, role: str) -> PreTrainedModel:
    """Returns the model of a role in the checkpoint of a run's last step.

    Args:
        config: of a run that has ended.
        role: the name of the role's cluster.
    """
    return AutoModelForCausalLM.from_pretrained(last_checkpoint(config, role))


def largest_difference(left: nn.Module | Iterable[Tensor], right: nn.Module | Iterable[Tensor]) -> float:
    """Returns the largest difference between any two numbers of two models.

    Args:
        left: a model, or its parameters.
        right: another one of the same shape.

    Example:
        >>> largest_difference(nn.Linear(2, 2), nn.Linear(2, 2)) > 0
        True
    """
    mine, theirs = (side.parameters() if isinstance(side, nn.Module) else side for side in (left, right))
    return max(float((a - b).detach().abs().max()) for a, b in zip(mine, theirs, strict=True))
