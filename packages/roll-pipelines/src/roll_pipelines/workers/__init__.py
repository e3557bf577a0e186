"""Workers: what each role of a pipeline can do; a strategy does the computing."""

from roll_pipelines.workers.actor import ActorWorker
from roll_pipelines.workers.infer import InferWorker
from roll_pipelines.workers.reward import RewardWorker
from roll_pipelines.workers.sft import SFTWorker
from roll_pipelines.workers.worker import Worker

__all__ = ["ActorWorker", "InferWorker", "RewardWorker", "SFTWorker", "Worker"]
