"""The worker that owns a strategy: the executor's worker plus methods that forward to it."""

import zlib
from collections.abc import Sequence
from typing import Any

from transformers.utils import logging

from roll_dispatch import Dispatch, register
from roll_executor import Worker as ExecutorWorker
from roll_protocol import DataProto
from roll_strategies import (
    Bucket,
    InferenceStrategy,
    Manifest,
    ModelProvider,
    TrainStrategy,
    Transport,
    UpdateReceipt,
    create_strategy,
    seed_draws,
)


class Worker(ExecutorWorker):
    """A worker with an optional strategy in `self.strategy`; a subclass adds what its role can do.

    Without a strategy, `load_states` and `offload_states` do nothing; what else needs one says so.

    Example:
        >>> class Scorer(Worker):
        ...     @register(dispatch_mode=Dispatch.ONE_TO_ALL)
        ...     def initialize(self, pipeline_config):
        ...         super().initialize(pipeline_config)
        ...         self.start_strategy()
    """

    strategy: InferenceStrategy | None = None

    def initialize(self, pipeline_config: Any) -> None:  # Any: each pipeline's own configuration
        """Keeps the pipeline's configuration, and seeds what this worker draws by the run's seed."""
        super().initialize(pipeline_config)
        self._seed_draws(self.rank)

    def start_strategy(self, model_provider: ModelProvider | None = None) -> InferenceStrategy:
        """Creates the strategy that the role's configuration names, and initializes it.

        Args:
            model_provider: how the model is made; None loads `model_args.model_name_or_path`.
        """
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        self._seed_draws(-1)  # weights that no checkpoint holds are the same on every rank
        self.strategy = create_strategy(worker=self)
        self.strategy.initialize(model_provider=model_provider)
        self._seed_draws(self.rank_info.dp_rank)
        return self.strategy

    def _seed_draws(self, place: int) -> None:
        run = int(getattr(self.pipeline_config, "seed", 0))
        seed_draws((run * 1_000_003 + zlib.crc32(self.cluster_name.encode())) * 65_537 + place + 1)

    @property
    def engine(self) -> InferenceStrategy:
        """The strategy.

        Raises:
            RuntimeError: the role has none, or `initialize` has not run.
        """
        if self.strategy is None:
            raise RuntimeError(
                f"role {self.cluster_name!r} has no strategy: set strategy_args.strategy_name in its "
                f"configuration and call initialize() first"
            )
        return self.strategy

    @property
    def trainer(self) -> TrainStrategy:
        """The strategy, when it can train.

        Raises:
            RuntimeError: there is none, or it only infers.
        """
        engine = self.engine
        if not isinstance(engine, TrainStrategy):
            raise RuntimeError(
                f"role {self.cluster_name!r} is asked to train, but its strategy "
                f"{engine.context.strategy_name!r} only infers; choose one that trains, such as 'fsdp2_train'"
            )
        return engine

    # -- state on the device

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_states(self, include: Sequence[str] | None = None) -> None:
        """Brings offloaded states back onto the device; None means all."""
        if self.strategy is not None:
            self.strategy.load_states(include)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def offload_states(self, include: Sequence[str] | None = None) -> None:
        """Moves states off the device; None means all."""
        if self.strategy is not None:
            self.strategy.offload_states(include)

    # -- checkpoints

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def do_checkpoint(self, global_step: int, checkpoint_dir: str) -> dict[str, float]:
        """Writes the role's state into a directory that all its ranks share; returns timings in seconds."""
        return self.engine.save_checkpoint(checkpoint_dir, global_step)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Reads what `do_checkpoint` wrote."""
        self.engine.load_checkpoint(checkpoint_dir)

    # -- weights, as the source

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, clear_cache=False)
    def setup_model_update(self, name: str, transport: Transport) -> None:
        """Prepares this source for weight updates under a name."""
        self.engine.setup_model_update(name, transport=transport)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def start_model_update(self, name: str, version: int) -> dict[str, float]:
        """Sends the weights as that version, all ranks together, and returns bytes and seconds."""
        return self.trainer.model_update(name, version)

    # -- weights, as a target: called by the source's transport

    def begin_update(self, manifest: Manifest) -> int:
        """Opens an update."""
        return self.engine.begin_update(manifest)

    def update_parameter_in_bucket(self, bucket: Bucket) -> int:
        """Takes the parameters of one bucket."""
        return self.engine.update_parameter_in_bucket(bucket)

    def commit_update(self, version: int) -> UpdateReceipt:
        """Closes an update."""
        return self.engine.commit_update(version)

    def abort_update(self, version: int) -> int:
        """Gives an update up."""
        return self.engine.abort_update(version)

    def setup_collective_group(self, group: Any) -> str:  # Any: roll_strategies.CollectiveGroup
        """Joins the group over which a broadcast transport sends."""
        return self.engine.setup_collective_group(group)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def process_weights_after_loading(self) -> None:
        """Lets the engine repack its weights after a whole update."""
        self.engine.process_weights_after_loading()


def with_metrics(metrics: dict[str, Any]) -> DataProto:  # Any: numbers and roll_protocol.Metric
    """Returns metrics in the form in which results of several ranks are joined."""
    return DataProto(meta_info={"metrics": metrics})


def any_layout(rows: DataProto) -> DataProto:
    """Returns the same rows, marked: padding may be left out, as outputs are read through `op_*` only."""
    rows.meta_info["any_layout"] = True
    return rows
