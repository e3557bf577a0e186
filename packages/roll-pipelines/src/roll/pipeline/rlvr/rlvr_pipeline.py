"""Where the seed guide has the multi-role reinforcement-learning pipeline."""

from roll_pipelines.rlvr import RLVRPipeline

__all__ = ["RLVRPipeline"]
