"""What proofs about pipelines have in common: run one to its end, and compare what it learnt."""

from collections.abc import Iterable
from pathlib import Path

from torch import Tensor, nn

from roll_pipelines.base import BasePipeline
from roll_pipelines.config import BaseConfig


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
