"""Where the seed guide has the two strategy interfaces."""

from roll_strategies import InferenceStrategy, TrainStrategy

__all__ = ["InferenceStrategy", "TrainStrategy"]
