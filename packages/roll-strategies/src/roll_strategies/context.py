"""The configuration and the coordinates that a strategy is given; it knows no worker."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from roll_dispatch import RankInfo
from roll_strategies.errors import StrategyConfigError
from roll_strategies.settings import BatchSettings, ModelSettings, TrainSettings


class StrategyOwner(Protocol):
    """What `create_strategy` reads off the object that owns the strategy, usually a Worker."""

    worker_config: object
    pipeline_config: object
    rank: int
    world_size: int
    local_rank: int
    master_addr: str
    master_port: int
    cluster_name: str
    device_type: str
    collective_backend: str
    rank_info: RankInfo


def _ignore(rank_info: RankInfo) -> None:
    """Takes a published RankInfo and does nothing; for strategies that nobody owns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyContext:
    """Everything that a strategy is told: its configuration, its coordinates, and whom to tell its real
    RankInfo.

    Example:
        >>> context = StrategyContext(strategy_name="mock_infer")
        >>> context.rank, context.world_size
        (0, 1)
    """

    strategy_name: str
    """Name of the engine in the entry-point group `roll.strategies`."""
    strategy_config: Mapping[str, object] = field(default_factory=dict)
    """The engine's own options, as the user wrote them."""
    model_args: object = None
    """The worker's model arguments as they are; a model provider of the user's may read more of them than we
    do."""
    training_args: object = None
    """The worker's training arguments as they are."""
    batching: BatchSettings = field(default_factory=BatchSettings)
    """How rows become micro-batches."""
    seed: int = 42
    """The pipeline's seed."""
    max_grad_norm: float | None = None
    """Gradients are clipped to this norm; None does not clip."""
    update_bucket_bytes: int = 64 * 1024 * 1024
    """How many bytes of weights travel in one message."""
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    master_addr: str = "127.0.0.1"
    master_port: int = 0
    cluster_name: str = "default"
    device_type: str = "cpu"
    """`torch.device` type of this worker."""
    collective_backend: str = "gloo"
    """torch.distributed backend for that device type."""
    collective_timeout_s: float = 1800.0
    """How long a collective may take before it raises."""
    update_timeout_s: float = 600.0
    """How long a target may take to answer one message of a weight update."""
    publish: Callable[[RankInfo], None] = _ignore
    """Called by `initialize` with the coordinates that the engine really has."""

    @property
    def model(self) -> ModelSettings:
        """The part of the model arguments that engines here read."""
        return ModelSettings.read(self.model_args)

    @property
    def training(self) -> TrainSettings:
        """The part of the training arguments that engines here read."""
        return TrainSettings.read(self.training_args, max_grad_norm=self.max_grad_norm)

    def data_parallel(self, *, context_parallel_size: int = 1) -> RankInfo:
        """Returns the coordinates of this rank when all parallelism is over data, then sequence pieces."""
        cp = context_parallel_size
        return RankInfo(
            rank=self.rank,
            world_size=self.world_size,
            dp_rank=self.rank // cp,
            dp_size=self.world_size // cp,
            cp_rank=self.rank % cp,
            cp_size=cp,
        )


def context_of(owner: StrategyOwner) -> StrategyContext:
    """Returns the context that an owner's attributes describe.

    Args:
        owner: an object with the attributes of `StrategyOwner`; it is read once and kept nowhere, but its
            `rank_info` is set when the strategy publishes its own.

    Returns:
        A frozen context.

    Raises:
        StrategyConfigError: the worker's configuration has no `strategy_args`, or no `strategy_name` in it.
    """
    worker_config, pipeline_config = owner.worker_config, owner.pipeline_config
    strategy_args = getattr(worker_config, "strategy_args", None)
    name = getattr(strategy_args, "strategy_name", None)
    if not isinstance(name, str) or not name:
        raise StrategyConfigError(
            f"worker {owner.cluster_name!r} has no strategy: set strategy_args.strategy_name in its "
            "configuration, "
            f"or do not call create_strategy for a role that needs none (found {name!r})"
        )

    def publish(rank_info: RankInfo) -> None:
        owner.rank_info = rank_info

    timeout_s = getattr(worker_config, "backend_timeout", None) or 1800.0
    megabytes = getattr(pipeline_config, "model_update_buffer_size_mb", None) or 64
    return StrategyContext(
        strategy_name=name,
        strategy_config=dict(getattr(strategy_args, "strategy_config", None) or {}),
        model_args=getattr(worker_config, "model_args", None),
        training_args=getattr(worker_config, "training_args", None),
        batching=BatchSettings.read(worker_config),
        seed=_seed(pipeline_config),
        max_grad_norm=_first(worker_config, pipeline_config, "max_grad_norm"),
        update_bucket_bytes=int(float(megabytes) * 1024 * 1024),
        rank=owner.rank,
        world_size=owner.world_size,
        local_rank=owner.local_rank,
        master_addr=owner.master_addr,
        master_port=int(owner.master_port),
        cluster_name=owner.cluster_name,
        device_type=owner.device_type,
        collective_backend=owner.collective_backend,
        collective_timeout_s=float(timeout_s),
        update_timeout_s=float(timeout_s),
        publish=publish,
    )


def _seed(pipeline_config: object) -> int:
    seed = getattr(pipeline_config, "seed", None)
    return 42 if seed is None else int(seed)


def _first(worker_config: object, pipeline_config: object, name: str) -> float | None:
    for config in (getattr(worker_config, "training_args", None), pipeline_config):
        value = getattr(config, name, None)
        if value is not None:
            return float(value)
    return None
