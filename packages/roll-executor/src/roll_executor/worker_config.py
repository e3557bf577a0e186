"""What one role asks for: its class, its size, its devices and how it fails."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roll_executor.errors import ConfigError
from roll_resources import RoleRequest


@dataclass
class WorkerConfig:
    """The configuration of one role. Fields keep what the user wrote: what is derived stands elsewhere."""

    name: str = ""
    """Name of the role; it prefixes logs and is part of every error."""
    worker_cls: Any = None  # Any: a class, a Ray actor class or a dotted string
    """The worker class, or its dotted path."""
    world_size: int | None = None
    """Number of workers; None: derived from the devices, or 1 on the CPU."""
    device_mapping: str | Sequence[int] | None = None
    """Global device ids in rank order; None or empty: workers on the CPU."""
    num_gpus_per_worker: int | None = None
    """Devices of one worker; None: derived."""
    num_cpus_per_worker: float | None = None
    """CPUs that one worker reserves; None: a token share."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """Custom Ray resources that one worker reserves."""
    system_envs: Mapping[str, Any] = field(default_factory=dict)  # Any: YAML gives numbers and booleans too
    """Environment variables of the workers; they win over the executor's own."""
    max_concurrency: int | None = None
    """Calls that one worker runs at a time; None: 1, and 1000 for a class with async methods."""
    timeout_s: float | None = None
    """Seconds after which a call of this role fails; None: never."""
    start_timeout_s: float = 300.0
    """Seconds within which all workers of the role must have been built."""
    kill_peers_after_s: float | None = 3.0
    """Seconds that the peers of a failed rank have to end their call before they are killed; None: never."""
    restart: str = "never"
    """``"never"``, or ``"on_failure"`` for a role whose workers hold nothing but what ``initialize`` made."""
    max_restarts: int = 3
    """How often one worker is restarted under ``restart: on_failure``."""
    cold_until: str | None = None
    """The method, e.g. ``"commit_update"``, before whose success a restarted worker takes only the calls of a
    weight push; None: it takes every call at once."""
    colocate: bool | None = None
    """True: the role means to share its devices, False: it must not, None: shown and allowed."""

    def role_request(self, name: str | None = None, *, path: str = "") -> RoleRequest:
        """Return the placement that this role asks for.

        Args:
            name: the role; None: the configuration's own name.
            path: where the configuration stands in the user's file, for messages.
        """
        return RoleRequest(
            name=name or self.name,
            world_size=self.world_size,
            device_mapping=self.device_mapping,
            num_gpus_per_worker=self.num_gpus_per_worker,
            num_cpus_per_worker=self.num_cpus_per_worker,
            resources=dict(self.resources or {}),
            path=path,
            colocate=self.colocate,
        )


def restartable(config: WorkerConfig) -> bool:
    """Return whether dead workers of the role are started again.

    Raises:
        ConfigError: if ``restart`` is no policy.
    """
    policy = getattr(config, "restart", "never")
    if policy not in ("never", "on_failure"):
        raise ConfigError(f"{config.name or 'role'}.restart is {policy!r}; choose 'never' or 'on_failure'")
    return bool(policy == "on_failure")


def environment_of(config: WorkerConfig) -> dict[str, str]:
    """Return ``system_envs`` as an environment: booleans as 1 and 0, None left out.

    Raises:
        ConfigError: if a value is neither text nor a number.
    """
    found = {}
    for name, value in (getattr(config, "system_envs", None) or {}).items():
        if value is None:
            continue
        if not isinstance(value, str | int | float):
            raise ConfigError(
                f"{config.name or 'role'}.system_envs.{name} is {value!r}; give text, a number or a boolean"
            )
        found[str(name)] = str(int(value)) if isinstance(value, bool) else str(value)
    return found
