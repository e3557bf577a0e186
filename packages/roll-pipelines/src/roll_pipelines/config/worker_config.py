"""The configuration of one role: its worker class, its devices and the engine behind it."""

from dataclasses import dataclass, field

from roll_executor import WorkerConfig as ExecutorWorkerConfig
from roll_pipelines.config.arguments import (
    DataArguments,
    GeneratingArguments,
    ModelArguments,
    StrategyArguments,
    TrainingArguments,
)
from roll_resources import DeviceMappingError, parse_device_mapping

ENGINES_WITH_SEVERAL_DEVICES = {
    "vllm": ("tensor_parallel_size", "pipeline_parallel_size"),
    "sglang": ("tp_size", "pp_size"),
}
"""Engines whose worker owns several devices, with the settings whose product is their number."""


@dataclass
class WorkerConfig(ExecutorWorkerConfig):
    """One role of a pipeline; a user's own role may subclass it.

    Example:
        >>> engine = StrategyArguments(strategy_name="vllm", strategy_config={"tensor_parallel_size": 2})
        >>> role = WorkerConfig(device_mapping=[0, 1, 2, 3], strategy_args=engine)
        >>> role.num_gpus_per_worker, role.world_size
        (2, 2)
    """

    worker_cls: str | type | None = None
    """The worker's class, or its dotted path."""
    strategy_args: StrategyArguments = field(default_factory=StrategyArguments)
    """The engine and its settings."""
    model_args: ModelArguments = field(default_factory=ModelArguments)
    """The weights."""
    training_args: TrainingArguments = field(default_factory=TrainingArguments)
    """The optimiser."""
    generating_args: GeneratingArguments = field(default_factory=GeneratingArguments)
    """How tokens are sampled."""
    data_args: DataArguments = field(default_factory=DataArguments)
    """Where rows come from."""
    infer_batch_size: int = 16
    """Rows of one micro-batch in scoring and generation."""
    use_dynamic_batching_in_train: bool = False
    """Form training micro-batches by tokens instead of rows."""
    max_tokens_per_microbatch_in_train: int | None = None
    """Most tokens of a training micro-batch, with dynamic batching."""
    use_dynamic_batching_in_infer: bool = False
    """Form scoring micro-batches by tokens instead of rows."""
    max_tokens_per_microbatch_in_infer: int | None = None
    """Most tokens of a scoring micro-batch, with dynamic batching."""
    use_sequence_packing: bool = False
    """Join the rows of a micro-batch into one sequence, so that no padding is computed."""
    model_update_frequency: int = 1
    """Steps between two weight updates into this role."""
    backend_timeout: float = 600.0
    """Seconds after which a collective operation of the engine is given up."""

    def __post_init__(self) -> None:
        """Fills `num_gpus_per_worker` and `world_size` where they are None and can be derived."""
        devices = self.device_ids()
        self.derived_fields: set[str] = set()
        if self.num_gpus_per_worker is None and devices:
            self.derived_fields.add("num_gpus_per_worker")
            self.num_gpus_per_worker = self.engine_devices() or 1
        if self.world_size is None:
            self.derived_fields.add("world_size")
            self.world_size = len(devices) // max(1, self.num_gpus_per_worker or 1) if devices else 1

    def device_ids(self) -> tuple[int, ...]:
        """Returns the global device ids, or nothing for a role on CPUs or a mapping that cannot be read."""
        try:
            return tuple(parse_device_mapping(self.device_mapping) or ())
        except DeviceMappingError:
            return ()  # the rule on device_mapping reports it, together with everything else

    def engine_devices(self) -> int | None:
        """Returns how many devices one worker's engine spans, or None when the engine does not say."""
        sizes = ENGINES_WITH_SEVERAL_DEVICES.get(self.strategy_args.strategy_name or "")
        if sizes is None:
            return None
        product = 1
        for size in sizes:
            value = self.strategy_args.strategy_config.get(size, 1)
            product *= value if isinstance(value, int) else 1
        return product
