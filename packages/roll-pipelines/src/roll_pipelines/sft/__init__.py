"""Supervised fine-tuning."""

from roll_pipelines.sft.config import SFTConfig
from roll_pipelines.sft.pipeline import SFTPipeline

__all__ = ["SFTConfig", "SFTPipeline"]
