"""The rules that span several fields: each yields problems that carry their YAML path."""

import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from roll_pipelines.config.base_config import BaseConfig
from roll_pipelines.config.machine import Machine
from roll_pipelines.config.problems import Problem, nearest, one_of
from roll_pipelines.config.tracker_names import PACKAGES
from roll_pipelines.config.worker_config import WorkerConfig
from roll_pipelines.transfer import transfer_problems
from roll_resources import DeviceMappingError, parse_device_mapping

MODEL_PARALLEL_SIZES = {
    "fsdp2_train": ("fsdp_size", "ulysses_size", "tensor_parallel_size"),
    "fsdp2_infer": ("fsdp_size", "ulysses_size", "tensor_parallel_size"),
    "megatron_train": ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),
    "megatron_infer": ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),
}
"""Engines that spread one model over workers, with the settings whose product must divide their number."""


def find_problems(config: BaseConfig, machine: Machine) -> Iterator[Problem]:
    """Yields every broken rule of a configuration whose fields have the right types.

    Args:
        config: the configuration.
        machine: what is installed here.
    """
    yield from _sizes(config)
    yield from _trackers(config)
    yield from _telemetry(config)
    yield from transfer_problems(config.transfer_backend)
    for path, role in config.roles().items():
        yield from _strategy(path, role, machine)
        yield from _devices(path, role, config, machine)
        yield from _parallel(path, role)
        yield from _model(path, role, config)
        yield from _batches(path, role)
    yield from config.problems()


def without_followers(problems: Iterable[Problem], first: Iterable[Problem]) -> list[Problem]:
    """Returns the problems that are not a mere consequence of an earlier one at the same place.

    Args:
        problems: what the rules found on a configuration in which wrong values were replaced by defaults.
        first: the unknown keys and wrong types of that configuration.
    """
    bad = [problem.path for problem in first]
    return [p for p in problems if not any(_touches(p.path, path) for path in bad)]


def _touches(path: str, other: str) -> bool:
    return (
        path == other
        or path.startswith((f"{other}.", f"{other}["))
        or other.startswith((f"{path}.", f"{path}["))
    )


def _sizes(config: BaseConfig) -> Iterator[Problem]:
    for name in ("max_steps", "num_nodes", "logging_steps"):
        if getattr(config, name) < 1:
            yield Problem(path=name, rule="must be at least 1", value=getattr(config, name))
    for name in ("save_steps", "eval_steps", "max_ckpt_to_keep"):
        if getattr(config, name) < 0:
            yield Problem(path=name, rule="must not be negative", value=getattr(config, name), hint="0")
    prompt, response, whole = config.prompt_length, config.response_length, config.sequence_length
    for name, value in (("prompt_length", prompt), ("response_length", response), ("sequence_length", whole)):
        if value is not None and value < 1:
            yield Problem(path=name, rule="must be at least 1", value=value)
    if prompt and response and whole and whole != prompt + response:
        rule = f"must be prompt_length + response_length = {prompt + response}"
        yield Problem(path="sequence_length", rule=rule, value=whole, hint="leave it out: it is derived")


def _trackers(config: BaseConfig) -> Iterator[Problem]:
    for name in [config.track_with] if isinstance(config.track_with, str) else config.track_with:
        package = PACKAGES.get(name)
        if name not in PACKAGES:
            hint = one_of(sorted(PACKAGES), name)
            yield Problem(path="track_with", rule="must name trackers", value=name, hint=hint)
        elif package is not None and importlib.util.find_spec(package) is None:
            hint = f"pip install 'roll-pipelines[{name}]'"
            yield Problem(path="track_with", rule=f"needs the package {package}", value=name, hint=hint)
    for name in config.tracker_kwargs:
        if name not in PACKAGES:
            hint = one_of(sorted(PACKAGES), name)
            yield Problem(path=f"tracker_kwargs.{name}", rule="must be a tracker", value=name, hint=hint)


OTLP = "opentelemetry.exporter.otlp.proto.http"


def _telemetry(config: BaseConfig) -> Iterator[Problem]:
    settings = config.telemetry
    needed = {"file": ["opentelemetry.sdk"], "otlp": ["opentelemetry.sdk", OTLP]}
    for module in needed.get(settings.spans or "", []):
        if not _is_installed(module):
            rule = f"needs the package {module.replace('.', '-')}"
            hint = "pip install 'roll-pipelines[telemetry]'"
            yield Problem(path="telemetry.spans", rule=rule, value=settings.spans, hint=hint)
            break
    if settings.endpoint is not None and not settings.endpoint.startswith(("http://", "https://")):
        rule, hint = "must begin with http:// or https:// (OTLP over HTTP, not gRPC)", "http://localhost:4318"
        yield Problem(path="telemetry.endpoint", rule=rule, value=settings.endpoint, hint=hint)
    if not 0.0 <= settings.sampled_share <= 1.0:
        value = settings.sampled_share
        yield Problem(path="telemetry.sampled_share", rule="must be from 0 to 1", value=value, hint="1.0")


def _is_installed(module: str) -> bool:
    parts = module.split(".")
    return all(importlib.util.find_spec(".".join(parts[: end + 1])) is not None for end in range(len(parts)))


def _strategy(path: str, role: WorkerConfig, machine: Machine) -> Iterator[Problem]:
    name = role.strategy_args.strategy_name
    if name is not None and name not in machine.strategies:
        hint = one_of(sorted(machine.strategies), name)
        yield Problem(
            path=f"{path}.strategy_args.strategy_name",
            rule="must be an installed engine",
            value=name,
            hint=hint,
        )


def _devices(path: str, role: WorkerConfig, config: BaseConfig, machine: Machine) -> Iterator[Problem]:
    where = f"{path}.device_mapping"
    try:
        ids = parse_device_mapping(role.device_mapping) or ()
    except DeviceMappingError as broken:
        yield Problem(path=where, rule=str(broken), value=role.device_mapping)
        return
    per_worker = role.num_gpus_per_worker
    derived = role.engine_devices()
    if ids and derived is not None and per_worker != derived:
        rule = f"must be tensor x pipeline parallel size = {derived} for {role.strategy_args.strategy_name}"
        yield Problem(
            path=f"{path}.num_gpus_per_worker",
            rule=rule,
            value=per_worker,
            hint="leave it out: it is derived",
        )
    if per_worker is not None and per_worker < 0:
        yield Problem(path=f"{path}.num_gpus_per_worker", rule="must not be negative", value=per_worker)
        return
    if role.world_size is not None and role.world_size < 1 and not ids:
        yield Problem(path=f"{path}.world_size", rule="must be at least 1", value=role.world_size)
    if not ids:
        return
    if len(ids) % (per_worker or 1) or len(ids) < (per_worker or 1):
        rule = f"must name a multiple of num_gpus_per_worker = {per_worker} devices"
        yield Problem(path=where, rule=rule, value=role.device_mapping, hint=f"it names {len(ids)}")
    elif role.world_size != len(ids) // (per_worker or 1):
        rule = f"must be devices / num_gpus_per_worker = {len(ids) // (per_worker or 1)}"
        yield Problem(
            path=f"{path}.world_size", rule=rule, value=role.world_size, hint="leave it out: it is derived"
        )
    yield from _within_the_cluster(where, role, ids, config, machine)


def _within_the_cluster(
    where: str, role: WorkerConfig, ids: tuple[int, ...], config: BaseConfig, machine: Machine
) -> Iterator[Problem]:
    per_node = config.num_gpus_per_node
    if per_node is None and config.num_nodes == 1:
        per_node = machine.devices_per_node
    if per_node is None or max(ids) < config.num_nodes * per_node:
        return
    total = config.num_nodes * per_node
    size = f"{config.num_nodes} node(s) x {per_node} device(s)"
    rule = f"must stay within the cluster: {size} = ids 0 to {total - 1}"
    if not total:
        rule = "must be left out: this machine has no devices, and num_gpus_per_node does not say otherwise"
    hint = "use fewer devices, or raise num_nodes or num_gpus_per_node"
    yield Problem(path=where, rule=rule, value=role.device_mapping, hint=hint)


def _parallel(path: str, role: WorkerConfig) -> Iterator[Problem]:
    settings = role.strategy_args.strategy_config
    product = 1
    for name in MODEL_PARALLEL_SIZES.get(role.strategy_args.strategy_name or "", ()):
        size = settings.get(name, 1)
        where = f"{path}.strategy_args.strategy_config.{name}"
        if size is None:
            continue
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            yield Problem(path=where, rule="must be an integer of at least 1", value=size)
            return
        product *= size
    if role.world_size and role.world_size % product:
        rule = f"must divide the number of workers, {role.world_size}"
        hint = f"parallel sizes multiply to {product}"
        yield Problem(
            path=f"{path}.strategy_args.strategy_config", rule=rule, value=dict(settings), hint=hint
        )


def _model(path: str, role: WorkerConfig, config: BaseConfig) -> Iterator[Problem]:
    name = role.model_args.model_name_or_path
    if name is None or not _is_path(name) or Path(name).exists():
        return
    inherited = name == config.pretrain
    folder = Path(name).parent
    close = (
        nearest(Path(name).name, [p.name for p in folder.iterdir() if p.is_dir()])
        if folder.is_dir()
        else None
    )
    hint = str(folder / close) if close else "write an existing directory, or a hub name such as org/model"
    where = "pretrain" if inherited else f"{path}.model_args.model_name_or_path"
    yield Problem(path=where, rule="must be an existing model directory", value=name, hint=hint)


def _is_path(name: str) -> bool:
    """A hub name has the form `model` or `org/model`; anything else, or in a folder here, is a path."""
    obvious = name.startswith((".", "/", "~")) or name.count("/") > 1 or name.endswith("/")
    return obvious or ("/" in name and Path(name).parent.is_dir())


def _batches(path: str, role: WorkerConfig) -> Iterator[Problem]:
    sizes: Mapping[str, int] = {
        "training_args.per_device_train_batch_size": role.training_args.per_device_train_batch_size,
        "training_args.gradient_accumulation_steps": role.training_args.gradient_accumulation_steps,
        "generating_args.num_return_sequences": role.generating_args.num_return_sequences,
        "infer_batch_size": role.infer_batch_size,
        "model_update_frequency": role.model_update_frequency,
    }
    for name, value in sizes.items():
        if value < 1:
            yield Problem(path=f"{path}.{name}", rule="must be at least 1", value=value)
    for when in ("train", "infer"):
        limit = getattr(role, f"max_tokens_per_microbatch_in_{when}")
        if getattr(role, f"use_dynamic_batching_in_{when}") and (limit is None or limit < 1):
            where = f"{path}.max_tokens_per_microbatch_in_{when}"
            yield Problem(path=where, rule=f"must be given with use_dynamic_batching_in_{when}", value=limit)
    if role.training_args.learning_rate < 0:
        where = f"{path}.training_args.learning_rate"
        yield Problem(path=where, rule="must not be negative", value=role.training_args.learning_rate)
