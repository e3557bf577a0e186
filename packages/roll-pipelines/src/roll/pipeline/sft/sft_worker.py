"""The worker of the supervised pipeline."""

from roll_pipelines.workers import SFTWorker

__all__ = ["SFTWorker"]
