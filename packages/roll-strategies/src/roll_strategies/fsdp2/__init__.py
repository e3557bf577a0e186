"""PyTorch FSDP2: training and scoring with a model that is sharded over workers."""

from roll_strategies.fsdp2.infer import Fsdp2InferStrategy
from roll_strategies.fsdp2.train import Fsdp2TrainStrategy

__all__ = ["Fsdp2InferStrategy", "Fsdp2TrainStrategy"]
