"""Train, score and generate with one engine behind one interface, and move weights between engines."""

from roll_strategies.capabilities import Capabilities
from roll_strategies.context import StrategyContext, StrategyOwner, context_of
from roll_strategies.counts import global_counts
from roll_strategies.errors import (
    BatchError,
    CheckpointError,
    LossError,
    MicroBatchError,
    ModelNotFound,
    NotInitialized,
    StaleWeights,
    StrategyConfigError,
    StrategyError,
    StrategyNotInstalled,
    UnknownStrategy,
    UnsupportedOperation,
    WeightSyncError,
)
from roll_strategies.factory import (
    MissingLibrary,
    build_strategy,
    check_strategy_name,
    create_strategy,
    load_strategy,
    missing_library,
    strategy_names,
)
from roll_strategies.holding import ModelHolder
from roll_strategies.interfaces import ForwardFunc, InferenceStrategy, LossFunc, ModelProvider, TrainStrategy
from roll_strategies.losses import LossMean, LossSum
from roll_strategies.microbatches import MicroBatches, plan_micro_batches
from roll_strategies.offload import Parking, StateKind, state_kinds
from roll_strategies.ops import Layout, SequenceShard, VocabularyShard
from roll_strategies.options import read_options
from roll_strategies.providers import default_model_provider, default_tokenizer
from roll_strategies.random_state import seed_draws
from roll_strategies.results import joined_results, take_rows
from roll_strategies.rows import row_lengths
from roll_strategies.schedule import rate_at
from roll_strategies.settings import BatchSettings, ModelSettings, TrainSettings
from roll_strategies.step import run_micro_batches
from roll_strategies.weights import (
    Answer,
    Bucket,
    BucketEntry,
    CollectiveGroup,
    Manifest,
    ParameterSpec,
    Transport,
    UpdateReceipt,
)
from roll_strategies.weights.plan import named_state
from roll_strategies.weights.sender import WeightSender
from roll_strategies.weights.target import UpdateTarget

__all__ = [
    "Answer",
    "BatchError",
    "BatchSettings",
    "Bucket",
    "BucketEntry",
    "Capabilities",
    "CheckpointError",
    "CollectiveGroup",
    "ForwardFunc",
    "InferenceStrategy",
    "Layout",
    "LossError",
    "LossFunc",
    "LossMean",
    "LossSum",
    "Manifest",
    "MicroBatchError",
    "MicroBatches",
    "MissingLibrary",
    "ModelHolder",
    "ModelNotFound",
    "ModelProvider",
    "ModelSettings",
    "NotInitialized",
    "ParameterSpec",
    "Parking",
    "SequenceShard",
    "StaleWeights",
    "StateKind",
    "StrategyConfigError",
    "StrategyContext",
    "StrategyError",
    "StrategyNotInstalled",
    "StrategyOwner",
    "TrainSettings",
    "TrainStrategy",
    "Transport",
    "UnknownStrategy",
    "UnsupportedOperation",
    "UpdateReceipt",
    "UpdateTarget",
    "VocabularyShard",
    "WeightSender",
    "WeightSyncError",
    "build_strategy",
    "check_strategy_name",
    "context_of",
    "create_strategy",
    "default_model_provider",
    "default_tokenizer",
    "global_counts",
    "joined_results",
    "load_strategy",
    "missing_library",
    "named_state",
    "plan_micro_batches",
    "rate_at",
    "read_options",
    "row_lengths",
    "run_micro_batches",
    "seed_draws",
    "state_kinds",
    "strategy_names",
    "take_rows",
]
