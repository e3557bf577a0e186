"""From a worker's configuration to the arguments of a vLLM engine."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from vllm.engine.arg_utils import EngineArgs

from roll_strategies.context import StrategyContext
from roll_strategies.errors import StrategyConfigError
from roll_strategies.hf.models import model_directory
from roll_strategies.options import read_options

OWNED = {
    "model": "model_args.model_name_or_path",
    "tokenizer": "model_args.model_name_or_path",
    "dtype": "model_args.dtype",
    "trust_remote_code": "model_args.trust_remote_code",
    "hf_overrides": "model_args.model_config_kwargs",
    "seed": "seed of the pipeline",
    "data_parallel_size": "world_size of the role: every worker is an engine of its own",
}
"""Arguments of vLLM that have another home in our configuration."""
FIXED = {
    "worker_extension_cls": "it is how weights arrive",
    "logprobs_mode": "log-probabilities are always those at the row's temperature, before top-k and top-p",
    "distributed_executor_backend": "it follows from the parallel sizes",
    "skip_tokenizer_init": "it follows from whether the model has a tokenizer",
    "enable_sleep_mode": "it follows from the device",
    "disable_log_stats": "use the metrics of the pipeline",
}
"""Arguments of vLLM that are ours to set, and why."""
CPU_CACHE_BYTES = 1 << 30
"""Default of `kv_cache_memory_bytes` on a CPU, where vLLM takes most of the host's memory for each worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmOptions:
    """The options of `vllm`: one of ours, and every other argument of vLLM's `EngineArgs` by its own name."""

    digest: str = "sampled"
    """How much of each arriving parameter is checked: `sampled` or `full`."""
    engine_args: Mapping[str, object] = field(default_factory=dict)
    """Arguments of `EngineArgs`, such as `tensor_parallel_size`, `gpu_memory_utilization`, `max_model_len`,
    `enforce_eager`, `enable_prefix_caching`; in a YAML they stand beside `digest`."""

    @classmethod
    def read(cls, strategy_config: Mapping[str, object]) -> "VllmOptions":
        """Returns the options that a user's `strategy_config` asks for.

        Raises:
            StrategyConfigError: an unknown key, or one that is set elsewhere or by us.
        """
        ours = {key: value for key, value in strategy_config.items() if key == "digest"}
        options = read_options(cls, ours, engine="vllm")
        if options.digest not in ("sampled", "full"):
            raise StrategyConfigError(
                f"strategy_args.strategy_config.digest of strategy 'vllm' must be 'sampled' or 'full', got "
                f"{options.digest!r}"
            )
        known = {item.name for item in fields(EngineArgs)}
        others = {key: value for key, value in strategy_config.items() if key not in ours}
        for key in others:
            _check(key, known)
        return cls(digest=options.digest, engine_args=others)


def _check(key: str, known: set[str]) -> None:
    place = f"strategy_args.strategy_config.{key}"
    if key in OWNED:
        raise StrategyConfigError(f"{place}: strategy 'vllm' takes this from {OWNED[key]}; set it there")
    if key in FIXED:
        raise StrategyConfigError(f"{place} cannot be set: {FIXED[key]}; take it out")
    if key not in known:
        near = difflib.get_close_matches(key, sorted((known | {"digest"}) - set(OWNED) - set(FIXED)), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "see vLLM's EngineArgs"
        raise StrategyConfigError(f"{place} is not an option of strategy 'vllm'; {hint}")


def engine_args(context: StrategyContext, options: VllmOptions) -> EngineArgs:
    """Returns the arguments of the engine that a context describes.

    Raises:
        ModelNotFound: no model directory.
        StrategyConfigError: vLLM refuses an argument.
    """
    settings = context.model
    directory = model_directory(settings)
    values: dict[str, Any] = dict(options.engine_args)  # Any: vLLM's arguments have many types
    values |= {
        "model": str(directory),
        "dtype": settings.dtype,
        "trust_remote_code": settings.trust_remote_code,
        "seed": context.seed + 7919 * context.rank,
        "worker_extension_cls": "roll_strategies.vllm.extension.EngineExtension",
        "logprobs_mode": "processed_logprobs",
        "skip_tokenizer_init": not (directory / "tokenizer_config.json").is_file(),
        "enable_sleep_mode": context.device_type == "cuda",
        "disable_log_stats": True,
    }
    if settings.model_config_kwargs:
        values["hf_overrides"] = dict(settings.model_config_kwargs)
    if context.device_type == "cpu":
        values.setdefault("kv_cache_memory_bytes", CPU_CACHE_BYTES)
    try:
        return EngineArgs(**values)
    except (TypeError, ValueError) as refused:
        raise StrategyConfigError(
            f"strategy 'vllm' of {context.cluster_name!r}: vLLM refuses its arguments: {refused}"
        ) from refused
