"""Configurations: dataclasses, read from YAML, checked whole before anything starts."""

from roll_pipelines.config.arguments import (
    DataArguments,
    GeneratingArguments,
    ModelArguments,
    StrategyArguments,
    TrainingArguments,
)
from roll_pipelines.config.base_config import BaseConfig, CheckpointConfig, TelemetryConfig, TransferConfig
from roll_pipelines.config.problems import ConfigError, Problem
from roll_pipelines.config.worker_config import WorkerConfig

__all__ = [
    "BaseConfig",
    "CheckpointConfig",
    "ConfigError",
    "DataArguments",
    "GeneratingArguments",
    "ModelArguments",
    "Problem",
    "StrategyArguments",
    "TelemetryConfig",
    "TrainingArguments",
    "TransferConfig",
    "WorkerConfig",
]
