"""What one role asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRequest:
    """The placement that one role asks for, as the user wrote it; ``plan`` checks it."""

    name: str
    """The role, e.g. ``actor_train``."""
    world_size: int | None = None
    """Number of workers; None: one per ``num_gpus_per_worker`` devices of the mapping, or one on the CPU."""
    device_mapping: str | Sequence[int] | None = None
    """Global device ids in rank order; None or empty: workers on the CPU, spread over the nodes."""
    num_gpus_per_worker: int | None = None
    """Devices of one worker; None: derived from the mapping and the world size, 1 when both are free."""
    num_cpus_per_worker: float | None = None
    """CPUs that one worker reserves; None: a token share, so that many workers fit on a laptop."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """Custom resources that one worker reserves."""
    path: str = ""
    """Where the request stands in the user's file, for messages; empty: the name."""
    colocate: bool | None = None
    """True: the role means to share its devices, False: it must not, None: sharing is allowed and shown."""
