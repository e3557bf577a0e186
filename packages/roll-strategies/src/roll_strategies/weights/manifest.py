"""What travels in a weight update: the manifest, the buckets, and the receipt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

ALIGNMENT = 16
"""Every parameter starts at a multiple of this many bytes inside a bucket."""


def dtype_name(dtype: torch.dtype) -> str:
    """Returns `float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    """Returns `torch.float32` for `float32`."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpec:
    """One parameter: its Hugging Face name, shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    aliases: tuple[str, ...] = ()
    """Other names of the same tensor (tied weights); it travels once."""

    @property
    def num_bytes(self) -> int:
        """Size on the wire, without padding."""
        count = 1
        for size in self.shape:
            count *= size
        return count * dtype_of(self.dtype).itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything that an update will bring, known before the first byte moves."""

    version: int
    parameters: tuple[ParameterSpec, ...]
    adapter: Mapping[str, object] | None = None
    """The adapter's configuration when the update brings a low-rank adapter instead of whole weights."""
    group: "CollectiveGroup | None" = None
    """The collective group that will bring the bytes, when the sender has one open."""

    @property
    def num_bytes(self) -> int:
        """Size of all parameters."""
        return sum(spec.num_bytes for spec in self.parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketEntry:
    """Where one parameter lies in a bucket, and the digest of its bytes."""

    name: str
    start: int
    num_bytes: int
    digest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSpace:
    """Memory that another process of the same machine can open."""

    key: str
    """The file that is mapped; for memory of a device a name that no other space has."""
    host: str
    """Where the sender runs, for messages."""
    num_bytes: int
    device: str = "cpu"
    """Type of device."""
    handle: bytes | None = None
    """What opens memory of a device; None for a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A few parameters as one run of bytes."""

    version: int
    index: int
    entries: tuple[BucketEntry, ...]
    num_bytes: int
    data: object = None
    """The bytes: a NumPy uint8 array, or a uint8 tensor where the sender packed them; None when something
    else brings them."""
    in_place: Mapping[int, Tensor] = field(default_factory=dict)
    """Bytes that the sender has not packed, by where they would start."""
    group: str | None = None
    """Name of the collective group that brings the bytes."""
    shared: SharedSpace | None = None
    """Memory of the sender that this machine's processes can open, which holds the bytes."""


NOT_IN_GROUP = -1
"""A target's answer to a manifest whose group it has not joined."""
LARGE_BYTES = 1024 * 1024
"""A parameter of at least so many bytes travels on its own in a collective, from where it lies to where it
belongs."""


def runs_of(entries: Sequence[BucketEntry]) -> list[tuple[BucketEntry, ...]]:
    """Returns the runs in which a collective sends a bucket: all small parameters together, then each large
    one; empty ones are in none."""
    small = tuple(entry for entry in entries if 0 < entry.num_bytes < LARGE_BYTES)
    return [*([small] if small else []), *((e,) for e in entries if e.num_bytes >= LARGE_BYTES)]


def places_in(run: Sequence[BucketEntry]) -> tuple[list[int], int]:
    """Returns where each parameter of a run starts in it, aligned, and how many bytes the run has."""
    places, end = [], 0
    for entry in run:
        places.append(-(-end // ALIGNMENT) * ALIGNMENT)
        end = places[-1] + entry.num_bytes
    return places, end


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveGroup:
    """Where sender (rank 0) and targets (ranks 1...) of a broadcast transport meet."""

    name: str
    addr: str
    port: int
    world_size: int
    backend: str
    timeout_s: float
    ranks: Mapping[int, int] = field(default_factory=dict)
    """Group rank by the target's own rank; empty means own rank + 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReceipt:
    """What a target holds after a committed update."""

    version: int
    rank: int
    num_parameters: int
    num_bytes: int
    digest: int
    """Digest over the loaded parameters, comparable with the sender's."""
