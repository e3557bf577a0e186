"""Which parameters an update brings, and in which buckets: pure, and printable before anything moves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from roll_strategies.weights.manifest import ALIGNMENT, Manifest, ParameterSpec, dtype_name


@dataclass(frozen=True, slots=True)
class PlannedBucket:
    """The parameters of one bucket, and where each starts."""

    specs: tuple[ParameterSpec, ...]
    starts: tuple[int, ...]
    num_bytes: int


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """Everything that one update will send.

    Example:
        >>> spec = ParameterSpec(name="w", shape=(4,), dtype="float32")
        >>> print(plan_update([spec], bucket_bytes=1024, num_targets=2))
        1 parameters, 16 bytes in 1 buckets of at most 1024 bytes; 16 bytes on each of 2 links
    """

    buckets: tuple[PlannedBucket, ...]
    bucket_bytes: int
    num_targets: int = 1

    @property
    def num_bytes(self) -> int:
        """Bytes on each link, padding included."""
        return sum(bucket.num_bytes for bucket in self.buckets)

    def __str__(self) -> str:
        count = sum(len(bucket.specs) for bucket in self.buckets)
        return (
            f"{count} parameters, {self.num_bytes} bytes in {len(self.buckets)} buckets of at most "
            f"{self.bucket_bytes} "
            f"bytes; {self.num_bytes} bytes on each of {self.num_targets} links"
        )


def plan_update(specs: Sequence[ParameterSpec], *, bucket_bytes: int, num_targets: int = 1) -> UpdatePlan:
    """Returns buckets that hold every parameter once, in order.

    Args:
        specs: what is sent.
        bucket_bytes: a bucket is closed before it would grow beyond this; a parameter that is larger alone
            has a bucket of its own.
        num_targets: only for the printed plan.

    Raises:
        ValueError: `bucket_bytes` is below 1.
    """
    if bucket_bytes < 1:
        raise ValueError(
            f"bucket_bytes must be at least 1, got {bucket_bytes}; set model_update_buffer_size_mb above 0"
        )
    buckets: list[PlannedBucket] = []
    held: list[ParameterSpec] = []
    starts: list[int] = []
    end = 0

    def close() -> None:
        buckets.append(PlannedBucket(tuple(held), tuple(starts), end))
        held.clear()
        starts.clear()

    for spec in specs:
        start = -(-end // ALIGNMENT) * ALIGNMENT
        if held and start + spec.num_bytes > bucket_bytes:
            close()
            start = 0
        held.append(spec)
        starts.append(start)
        end = start + spec.num_bytes
    if held:
        close()
    return UpdatePlan(tuple(buckets), bucket_bytes, num_targets)


@runtime_checkable
class Gathered(Protocol):
    """Something that becomes a whole tensor when it is asked to: a sharded tensor, or one that is
    computed."""

    @property
    def shape(self) -> torch.Size:
        """Shape of the whole."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the whole."""
        ...

    def full_tensor(self) -> Tensor:
        """Returns the whole; a collective when it is sharded."""
        ...


def named_state(model: nn.Module) -> dict[str, Tensor]:
    """Returns parameters and persistent buffers by name; tied ones stand under each of their names."""
    return {
        str(name): value
        for name, value in model.state_dict(keep_vars=True).items()
        if isinstance(value, Tensor)
    }


def manifest_of(
    named: Mapping[str, Tensor | Gathered], *, version: int, dtype: torch.dtype | None = None
) -> Manifest:
    """Returns the manifest of a model's state; a tied tensor is listed once, its other names as aliases.

    Args:
        named: tensors by name, sharded or not.
        version: the update's number.
        dtype: dtype on the wire of floating tensors; None keeps each tensor's own.
    """
    names: dict[int, list[str]] = {}
    for name, tensor in named.items():
        names.setdefault(id(tensor), []).append(name)
    specs = []
    for same in names.values():
        tensor = named[same[0]]
        wire = dtype if dtype is not None and tensor.dtype.is_floating_point else tensor.dtype
        specs.append(
            ParameterSpec(
                name=same[0], shape=tuple(tensor.shape), dtype=dtype_name(wire), aliases=tuple(same[1:])
            )
        )
    return Manifest(version=version, parameters=tuple(specs))
