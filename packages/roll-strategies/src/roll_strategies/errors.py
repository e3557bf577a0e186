"""What can go wrong in a strategy, one class a reason."""


class StrategyError(Exception):
    """The root of every error that roll_strategies raises."""


class UnknownStrategy(StrategyError, ValueError):
    """No engine of that name is registered in the entry-point group `roll.strategies`."""


class StrategyNotInstalled(StrategyError, ImportError):
    """The engine is known, but a library that it needs is missing."""


class StrategyConfigError(StrategyError, ValueError):
    """A configuration value is unknown, of the wrong type, or asks for what the engine cannot do."""


class ModelNotFound(StrategyError, FileNotFoundError):
    """The model directory does not exist or holds no model."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class UnsupportedOperation(StrategyError, NotImplementedError):
    """This engine does not have that method; its capabilities say so."""


class NotInitialized(StrategyError, RuntimeError):
    """A strategy was used before `initialize`."""


class BatchError(StrategyError, ValueError):
    """A batch lacks a column, or a column has the wrong shape."""


class MicroBatchError(StrategyError, ValueError):
    """Rows cannot be planned into micro-batches under the given limits."""


class LossError(StrategyError, ValueError):
    """A loss function returned something that the strategy cannot normalise."""


class CheckpointError(StrategyError, RuntimeError):
    """A checkpoint is missing, incomplete, or of another shape."""


class WeightSyncError(StrategyError, RuntimeError):
    """A weight update did not arrive whole on every target."""


class StaleWeights(StrategyError, RuntimeError):
    """The engine holds half-updated weights and refuses to compute with them."""
