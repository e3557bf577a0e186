"""The configuration of the reinforcement-learning pipeline."""

from roll_pipelines.rlvr import RLVRConfig

__all__ = ["RLVRConfig"]
