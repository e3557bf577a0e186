"""The worker arguments that engines read, each read in one place off whatever object carries them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Self

from roll_strategies.errors import StrategyConfigError

SCHEDULES = ("constant", "constant_with_warmup", "linear", "cosine")


def _read(source: object, name: str) -> object:
    """Returns a field of a dataclass-like object or of a mapping; None when it is not there."""
    if isinstance(source, Mapping):
        return source.get(name)
    return getattr(source, name, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Which model, and how it is loaded."""

    model_name_or_path: str | None = None
    """A directory in the Hugging Face format."""
    dtype: str = "float32"
    """Master dtype: parameters are held in it."""
    attn_implementation: str | None = None
    """Attention kernel of transformers; None leaves the choice to transformers."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model."""
    model_config_kwargs: Mapping[str, object] = field(default_factory=dict)
    """Entries of the model's `config.json` to change."""
    model_type: str = "causal_lm"
    """Head: `causal_lm`, `token_classification` (critic), `sequence_classification` (reward model)."""
    num_labels: int = 1
    """Width of a value or reward head."""
    gradient_checkpointing: bool = False
    """Recompute activations in backward instead of keeping them."""
    freeze_module_prefix: tuple[str, ...] = ()
    """Parameters whose name starts with one of these are not trained."""
    lora_rank: int = 0
    """Rank of the adapter; 0 trains the whole model."""
    lora_alpha: float | None = None
    """Scale of the adapter; None takes twice the rank."""
    lora_dropout: float = 0.0
    lora_target: tuple[str, ...] = ()
    """Names of the linear modules that get an adapter; empty means every linear layer but the head."""

    @classmethod
    def read(cls, source: object) -> Self:
        """Returns the settings found on `source`; what is missing or None has its default."""
        if isinstance(source, cls):
            return source
        values: dict[str, object] = {}
        aliases = {
            "model_name_or_path": ("model_name_or_path", "pretrain"),
            "dtype": ("dtype", "torch_dtype"),
        }
        for item in fields(cls):
            for name in aliases.get(item.name, (item.name,)):
                value = _read(source, name)
                if value is not None:
                    values[item.name] = value
                    break
        for name in ("freeze_module_prefix", "lora_target"):
            if name in values:
                values[name] = _names(values[name], name)
        if "dtype" in values:
            values["dtype"] = str(values["dtype"]).removeprefix("torch.")
        return cls(**values)  # type: ignore[arg-type]  # types are those of the configuration's own fields


def _names(value: object, name: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, list | tuple):
        return tuple(str(part) for part in value)
    raise StrategyConfigError(
        f"model_args.{name} must be a list of names or a comma-separated string, not {value!r}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """How parameters are optimised."""

    learning_rate: float = 1e-6
    weight_decay: float = 0.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    max_grad_norm: float | None = None
    """Clip gradients to this norm; None or 0 does not clip."""
    lr_scheduler_type: str = "constant"
    """`constant`, `constant_with_warmup`, `linear` or `cosine`."""
    warmup_steps: int = 0
    """Optimizer steps over which the learning rate rises from 0."""
    warmup_ratio: float = 0.0
    """The same as a share of `max_steps`, used when `warmup_steps` is 0."""
    max_steps: int = 0
    """Optimizer steps over which `linear` and `cosine` decay."""
    min_lr_ratio: float = 0.0
    """Share of the learning rate that `linear` and `cosine` end at."""
    optimizer: str = "adamw"
    """`adamw`, or `adamw_8bit` where torchao is installed."""

    @classmethod
    def read(cls, source: object, *, max_grad_norm: float | None = None) -> Self:
        """Returns the settings found on `source`; what is missing or None has its default."""
        if isinstance(source, cls):
            return source
        values: dict[str, object] = {}
        for item in fields(cls):
            value = _read(source, item.name)
            if value is not None:
                values[item.name] = value
        values.setdefault("max_grad_norm", max_grad_norm)
        if not values["max_grad_norm"]:
            values["max_grad_norm"] = None
        return cls(**values)  # type: ignore[arg-type]  # types are those of the configuration's own fields

    def __post_init__(self) -> None:
        if self.lr_scheduler_type not in SCHEDULES:
            raise StrategyConfigError(
                f"training_args.lr_scheduler_type must be one of {SCHEDULES}, got {self.lr_scheduler_type!r}"
            )
        if self.lr_scheduler_type in ("linear", "cosine") and self.max_steps < 1:
            raise StrategyConfigError(
                f"training_args.lr_scheduler_type {self.lr_scheduler_type!r} decays over "
                "training_args.max_steps, "
                f"which is {self.max_steps}; set max_steps to the number of optimizer steps, or use "
                "'constant'"
            )

    @property
    def warmup(self) -> int:
        """Optimizer steps over which the learning rate rises."""
        return self.warmup_steps or int(self.warmup_ratio * self.max_steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """How the rows of a call become micro-batches."""

    train_rows: int = 1
    """Rows in one training micro-batch (`training_args.per_device_train_batch_size`)."""
    infer_rows: int = 8
    """Rows in one scoring or generating micro-batch (`infer_batch_size`)."""
    train_tokens: int | None = None
    """Token budget of a training micro-batch; None plans by rows."""
    infer_tokens: int | None = None
    """Token budget of a scoring micro-batch; None plans by rows."""
    packing: bool = False
    """Join the rows of a micro-batch into one sequence."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Reserved for engines of third parties."""

    @classmethod
    def read(cls, worker_config: object) -> Self:
        """Returns the settings found on a worker's configuration; what is missing has its default."""
        training = _read(worker_config, "training_args")

        def tokens(switch: str, budget: str) -> int | None:
            if not _read(worker_config, switch):
                return None
            limit = _read(worker_config, budget)
            if not isinstance(limit, int) or limit < 1:
                raise StrategyConfigError(f"{switch} needs {budget} >= 1, got {limit!r}")
            return limit

        rows = _read(training, "per_device_train_batch_size")
        infer_rows = _read(worker_config, "infer_batch_size")
        return cls(
            train_rows=_positive(rows, "training_args.per_device_train_batch_size", 1),
            infer_rows=_positive(infer_rows, "infer_batch_size", 8),
            train_tokens=tokens("use_dynamic_batching_in_train", "max_tokens_per_microbatch_in_train"),
            infer_tokens=tokens("use_dynamic_batching_in_infer", "max_tokens_per_microbatch_in_infer"),
            packing=bool(_read(worker_config, "use_sequence_packing")),
        )


def _positive(value: object, name: str, default: int) -> int:
    if value is None:
        return default
    if not isinstance(value, int) or value < 1:
        raise StrategyConfigError(f"{name} must be an integer of at least 1, got {value!r}")
    return value
