"""Where the seed guide has the preference pipeline."""

from roll_pipelines.dpo import DPOPipeline

__all__ = ["DPOPipeline"]
