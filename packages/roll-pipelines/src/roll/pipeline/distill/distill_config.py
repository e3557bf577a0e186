"""The configuration of the distillation pipeline."""

from roll_pipelines.distill import DistillConfig

__all__ = ["DistillConfig"]
