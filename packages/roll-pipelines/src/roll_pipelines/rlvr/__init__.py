"""Reinforcement learning with verifiable rewards."""

from roll_pipelines.rlvr.config import RewardConfig, RLVRConfig, ValidationConfig, WarmUpConfig
from roll_pipelines.rlvr.pipeline import RLVRPipeline

__all__ = ["RLVRConfig", "RLVRPipeline", "RewardConfig", "ValidationConfig", "WarmUpConfig"]
