"""Engines with no model behind them: the same input gives the same output, for tests of pipelines."""

from roll_strategies.mock.infer import MockInferStrategy
from roll_strategies.mock.train import MockTrainStrategy

__all__ = ["MockInferStrategy", "MockTrainStrategy"]
