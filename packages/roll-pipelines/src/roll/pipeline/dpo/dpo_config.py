"""The configuration of the preference pipeline."""

from roll_pipelines.dpo import DPOConfig

__all__ = ["DPOConfig"]
