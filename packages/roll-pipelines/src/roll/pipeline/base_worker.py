"""Where the seed guide's system has the workers of its pipelines."""

from roll_pipelines.workers import ActorWorker, InferWorker

__all__ = ["ActorWorker", "InferWorker"]
