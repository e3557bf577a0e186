"""Preference training: DPO, IPO, SimPO and KTO."""

from roll_pipelines.dpo.config import DPOConfig
from roll_pipelines.dpo.pipeline import DPOPipeline
from roll_pipelines.dpo.worker import PreferenceWorker

__all__ = ["DPOConfig", "DPOPipeline", "PreferenceWorker"]
