"""Where the seed guide has `BasePipeline`."""

from roll_pipelines.base import BasePipeline

__all__ = ["BasePipeline"]
