"""The options of the FSDP2 engines."""

from dataclasses import dataclass
from typing import Literal

from roll_strategies.errors import StrategyConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Fsdp2Options:
    """How the model is split, and in which dtypes it is held, computed and reduced."""

    fsdp_size: int = 1
    """Ranks over which parameters are sharded; 1 means all of them. Fewer than all gives groups that
    replicate."""
    ulysses_size: int = 1
    """Ranks over which each sequence is split."""
    master_dtype: str = "float32"
    """Dtype of parameters and optimizer state."""
    param_dtype: str | None = None
    """Dtype of computation; None takes `model_args.dtype`."""
    reduce_dtype: str = "float32"
    """Dtype in which gradients are reduced."""
    sync_dtype: str | None = None
    """Dtype in which weights are sent; None sends masters as they are."""
    reshard_after_forward: bool | None = None
    """Free gathered parameters after forward; None leaves it to FSDP."""
    offload_policy: bool = False
    """Keep shards on the host and bring them to the device when they are used."""
    wrap_classes: list[str] | tuple[str, ...] = ()
    """Module classes that are sharded on their own; empty takes the model's own list of layers."""
    save_hf_model: bool = True
    """Write a Hugging Face export into every checkpoint."""
    update_transport: Literal["object_store", "broadcast", "colocated"] = "object_store"
    """How bytes of weights travel: `object_store`, `broadcast`, or `colocated` (memory that source and
    targets on one machine share)."""
    lora_update: Literal["merged", "adapter"] = "merged"
    """What a model with an adapter sends: `merged` weights, or the `adapter` alone."""
    digest: Literal["sampled", "full"] = "sampled"
    """How much of each parameter is checked on arrival: `sampled` or `full`."""

    def __post_init__(self) -> None:
        for name in ("fsdp_size", "ulysses_size"):
            if getattr(self, name) < 1:
                raise StrategyConfigError(
                    f"strategy_config.{name} must be at least 1, got {getattr(self, name)}"
                )

    def shard_size(self, world_size: int) -> int:
        """Returns over how many ranks parameters are sharded.

        Raises:
            StrategyConfigError: the sizes do not divide the number of workers.
        """
        if world_size % self.ulysses_size:
            raise StrategyConfigError(
                f"strategy_config.ulysses_size {self.ulysses_size} does not divide the {world_size} workers "
                "of the role"
            )
        if self.fsdp_size <= 1 or self.fsdp_size >= world_size:
            return world_size
        if world_size % self.fsdp_size:
            raise StrategyConfigError(
                f"strategy_config.fsdp_size {self.fsdp_size} does not divide the {world_size} workers of "
                "the role"
            )
        return self.fsdp_size
