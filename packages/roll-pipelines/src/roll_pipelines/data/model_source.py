"""Where the first weights of a run come from: a directory, or a small model built in code."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from roll_pipelines.config.problems import Problem
from roll_pipelines.config.worker_config import WorkerConfig
from roll_pipelines.data.tiny_model import TinyModelConfig, save_tiny_model


class ModelSource(Protocol):
    """The part of a configuration that says which model a run starts from."""

    seed: int
    pretrain: str | None
    tiny_model: TinyModelConfig | None


def model_problems(config: ModelSource) -> Iterator[Problem]:
    """Yields what is wrong when not exactly one model is named.

    Args:
        config: the configuration.
    """
    if config.pretrain is None and config.tiny_model is None:
        rule = "must name a model directory, or tiny_model must be given"
        yield Problem(path="pretrain", rule=rule, value=None, hint="write `tiny_model: {}` for a small model")
    if config.pretrain is not None and config.tiny_model is not None:
        rule = "must be left out when pretrain names a model"
        yield Problem(path="tiny_model", rule=rule, value="a section", hint="delete one of the two")


def first_weights(config: ModelSource, run_dir: Path) -> str:
    """Returns the directory or hub name of the model that a run starts from.

    A tiny model is built under the run directory; one that stands there, because the run is resumed, is kept.

    Args:
        config: the configuration.
        run_dir: the run directory.
    """
    if config.pretrain is not None:
        return config.pretrain
    assert config.tiny_model is not None, "a rule of the configuration demands one of the two"
    directory = run_dir / "tiny_model"
    if not (directory / "config.json").exists():
        save_tiny_model(directory, config.tiny_model, seed=config.seed)
    return str(directory)


def give_model(role: WorkerConfig, model: str, *, instead_of: str | None) -> None:
    """Lets a role load a model, unless its own configuration names another one.

    Args:
        role: the configuration of the role.
        model: the directory or hub name.
        instead_of: the name that the role inherited, which is replaced.
    """
    if role.model_args.model_name_or_path in (None, instead_of):
        role.model_args.model_name_or_path = model
