"""The configuration of the supervised pipeline."""

from roll_pipelines.sft import SFTConfig

__all__ = ["SFTConfig"]
