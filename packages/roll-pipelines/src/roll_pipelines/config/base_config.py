"""The configuration that every pipeline shares."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from roll_pipelines.config.problems import Problem
from roll_pipelines.config.worker_config import WorkerConfig

Runtime = Literal["ray", "local"]


@dataclass
class CheckpointConfig:
    """Where finished checkpoints are copied, beside the run directory."""

    output_dir: str | None = None
    """A directory or any fsspec URL; None keeps checkpoints in the run directory only."""
    async_upload: bool = True
    """Copy while training goes on; the last checkpoint is always waited for."""


@dataclass
class TelemetryConfig:
    """Spans of steps and calls, on the driver and in every worker."""

    spans: Literal["file", "otlp"] | None = None
    """`file` writes them into the run directory's `spans/`, `otlp` sends them to a collector."""
    endpoint: str | None = None
    """Address of the collector (OTLP over HTTP); None: what `OTEL_EXPORTER_OTLP_ENDPOINT` says."""
    service_name: str = "roll"
    """Name of the run in the collector."""
    sampled_share: float = 1.0
    """Share of steps whose spans are kept."""


@dataclass
class TransferConfig:
    """How batches travel between driver and workers."""

    backend_name: str | None = None
    """None or `object_store`: the runtime's own; `files`: a folder that all nodes see; or a package's."""
    backend_config: dict[str, object] = field(default_factory=dict)
    """Settings of the backend; `files` has `folder`, `min_bytes` and `mapped`."""


@dataclass
class BaseConfig:
    """The fields of every pipeline's configuration; subclass it and add roles and options.

    Every field of type `WorkerConfig`, or a dict or list of them, is a role. `__post_init__` fills what is
    derived and was left None; it changes nothing that was written and reads neither disk, environment, clock
    nor device.

    Example:
        >>> @dataclass
        ... class MyConfig(BaseConfig):
        ...     student: WorkerConfig = field(default_factory=WorkerConfig)
        >>> MyConfig().student.name
        'student'
    """

    exp_name: str = "roll"
    """The run's name, in trackers and in the report."""
    seed: int = 42
    """Seed of everything that is random: data order, sampling, initial weights."""
    runtime: Runtime = "ray"
    """`ray` places workers as actors; `local` runs all of them in this process, where a debugger works."""
    pretrain: str | None = None
    """Model directory of every role whose `model_args.model_name_or_path` is None."""
    output_dir: str = "output"
    """The run directory: configuration, metrics, checkpoints and report."""
    resume_from_checkpoint: bool | int | str = False
    """`true` takes the newest whole checkpoint of `output_dir`; a step number or a path takes that one."""
    max_steps: int = 500
    """Steps of the run."""
    save_steps: int = 50
    """A checkpoint every so many steps; the last step is always saved. 0 saves only the last step."""
    logging_steps: int = 1
    """Metrics are logged every so many steps, and at the last one."""
    eval_steps: int = 10
    """Validation every so many steps; 0 switches it off."""
    max_ckpt_to_keep: int = 0
    """Newest checkpoints to keep; 0 keeps all."""
    checkpoint_config: CheckpointConfig = field(default_factory=CheckpointConfig)
    """Where checkpoints are copied to."""
    track_with: str | list[str] = field(default_factory=lambda: ["jsonl", "tensorboard", "console"])
    """The trackers that get every metric."""
    tracker_kwargs: dict[str, dict[str, object]] = field(default_factory=dict)
    """Settings of a tracker, by its name."""
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    """Spans of steps and calls."""
    transfer_backend: TransferConfig = field(default_factory=TransferConfig)
    """How batches travel between driver and workers."""
    num_nodes: int = 1
    """Nodes that the run uses."""
    num_gpus_per_node: int | None = None
    """Devices of each node; counted on the machine when None."""
    system_envs: dict[str, str] = field(default_factory=dict)
    """Environment variables of every worker; those of a role win."""
    rpc_timeout: float = 3600.0
    """Seconds after which a call to a role fails, unless the role has a `timeout_s` of its own."""
    prompt_length: int | None = None
    """Most tokens of a prompt."""
    response_length: int | None = None
    """Most tokens of an answer."""
    sequence_length: int | None = None
    """Most tokens of a row; `prompt_length + response_length` when None and both are given."""
    is_offload_states: bool = False
    """Move a role's weights and optimiser off the device while another role uses it."""
    model_update_buffer_size_mb: int = 1024
    """Size of one bucket of weights on its way to the inference engine."""
    variables: dict[str, object] = field(default_factory=dict)
    """Free names for `${variables.x}` in the YAML; nothing else reads them."""

    def __post_init__(self) -> None:
        """Fills what is derived: names, sizes and model directories of roles, and the sequence length."""
        if (
            self.sequence_length is None
            and self.prompt_length is not None
            and self.response_length is not None
        ):
            self.sequence_length = self.prompt_length + self.response_length
        for path, role in self.roles().items():
            if not role.name:
                role.name = path.replace(".", "-").replace("[", "-").rstrip("]")
            if role.timeout_s is None:
                role.timeout_s = self.rpc_timeout
            role.system_envs = {**self.system_envs, **role.system_envs}
            if role.strategy_args.strategy_name is not None and role.model_args.model_name_or_path is None:
                role.model_args.model_name_or_path = self.pretrain

    def roles(self) -> dict[str, WorkerConfig]:
        """Returns every role of this configuration by its path in the YAML, in the order of the fields.

        Example:
            >>> BaseConfig().roles()
            {}
        """
        return dict(_roles(self))

    def idle_roles(self) -> set[str]:
        """Returns the paths of the roles that a run with these settings does not start; none unless a
        subclass knows some."""
        return set()

    def started_roles(self) -> dict[str, WorkerConfig]:
        """Returns the roles that a run starts, by their paths."""
        idle = self.idle_roles()
        return {path: role for path, role in self.roles().items() if path not in idle}

    def problems(self) -> Iterator[Problem]:
        """Yields what is wrong beyond the types of the fields; subclasses add their own rules.

        Example:
            A subclass writes `yield from super().problems()` and then yields a `Problem` per broken rule.
        """
        yield from ()

    @property
    def run_dir(self) -> Path:
        """The run directory as a path."""
        return Path(self.output_dir)


def _roles(config: BaseConfig) -> Iterator[tuple[str, WorkerConfig]]:
    for entry in dataclasses.fields(config):
        value = getattr(config, entry.name)
        if isinstance(value, WorkerConfig):
            yield entry.name, value
        elif isinstance(value, dict):
            yield from ((f"{entry.name}.{key}", v) for key, v in value.items() if isinstance(v, WorkerConfig))
        elif isinstance(value, list):
            yield from ((f"{entry.name}[{i}]", v) for i, v in enumerate(value) if isinstance(v, WorkerConfig))
