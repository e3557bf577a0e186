"""Training and reinforcement-learning pipelines: configuration, launcher, SFT, RLVR and more."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roll_pipelines.base import BasePipeline as BasePipeline
    from roll_pipelines.config import BaseConfig as BaseConfig
    from roll_pipelines.config import ConfigError as ConfigError
    from roll_pipelines.config import WorkerConfig as WorkerConfig

__all__ = ["BaseConfig", "BasePipeline", "ConfigError", "WorkerConfig"]

_HOMES = {
    "BasePipeline": "roll_pipelines.base",
    "BaseConfig": "roll_pipelines.config",
    "ConfigError": "roll_pipelines.config",
    "WorkerConfig": "roll_pipelines.config",
}


def __getattr__(name: str) -> object:
    """Imports a public name when it is first used, so that `roll --help` loads no torch."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {sorted(_HOMES)}")
    return getattr(import_module(_HOMES[name]), name)
