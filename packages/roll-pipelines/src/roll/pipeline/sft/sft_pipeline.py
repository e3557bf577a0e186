"""Where the seed guide has the supervised pipeline."""

from roll_pipelines.sft import SFTPipeline

__all__ = ["SFTPipeline"]
