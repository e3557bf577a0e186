"""Where the seed guide has `WorkerConfig`."""

from roll_pipelines.config import WorkerConfig

__all__ = ["WorkerConfig"]
