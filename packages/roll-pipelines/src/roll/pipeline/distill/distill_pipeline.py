"""Where the seed guide has the distillation pipeline."""

from roll_pipelines.distill import DistillPipeline

__all__ = ["DistillPipeline"]
