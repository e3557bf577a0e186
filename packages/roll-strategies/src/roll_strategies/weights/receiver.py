"""The target's side of an update: check what is announced, check what arrives, count what is there."""

import logging
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from roll_strategies.errors import StaleWeights, WeightSyncError
from roll_strategies.memory import Bytes, bytes_of, tensor_over
from roll_strategies.weights.digest import combined, digest_of
from roll_strategies.weights.manifest import (
    LARGE_BYTES,
    Bucket,
    BucketEntry,
    Manifest,
    ParameterSpec,
    UpdateReceipt,
    dtype_of,
)
from roll_strategies.weights.shards import copy_part

logger = logging.getLogger(__name__)


class WeightReceiver:
    """Copies the parameters of one update after the other into a model's tensors.

    Args:
        named: the model's tensors by name; tied ones under each of their names.
        rank: this target's rank, for messages and the receipt.
        digest: `sampled` or `full`.
    """

    def __init__(self, named: Mapping[str, Tensor], *, rank: int, digest: str = "sampled") -> None:
        self._named = dict(named)
        self._rank = rank
        self._mode = digest
        self._manifest: Manifest | None = None
        self._specs: dict[str, ParameterSpec] = {}
        self._digests: dict[str, int] = {}
        self._num_bytes = 0
        self._touched = False
        self.broken: str | None = None

    def begin(self, manifest: Manifest) -> int:
        """Opens an update; an older one that is still open is given up.

        Raises:
            WeightSyncError: the announced names or shapes are not the model's.
        """
        if self._manifest is not None:
            logger.warning(
                "update %d begins while %d was open; it is given up", manifest.version, self._manifest.version
            )
        self._check(manifest)
        self._manifest, self._touched = manifest, False
        self._specs = {spec.name: spec for spec in manifest.parameters}
        self._digests, self._num_bytes = {}, 0
        return manifest.version

    def landing(self, bucket: Bucket, device: torch.device) -> dict[int, Tensor]:
        """Returns, by start in the bucket, the memory of large parameters that can be received where they
        belong; the model counts as changed from now on.

        Args:
            bucket: what it holds.
            device: where bytes can be received.

        Raises:
            WeightSyncError: see `put`.
        """
        self._open(bucket.version, "update_parameter_in_bucket")
        found = {}
        for entry in bucket.entries:
            spec = self._expected(bucket, entry)
            home = self._named.get(spec.name)
            if home is None or entry.num_bytes < LARGE_BYTES:
                continue
            if home.device == device and _is_plain(home, spec):
                found[entry.start] = home.detach().view(-1).view(torch.uint8)
        self._touched = self._touched or bool(found)
        return found

    def put(self, bucket: Bucket, arrived: Callable[[int, int], Bytes]) -> int:
        """Copies the parameters of a bucket into the model.

        Args:
            bucket: what it holds.
            arrived: returns a part of the bucket, from a first byte to past a last one, once it is there.

        Raises:
            WeightSyncError: no such update is open, or a parameter is unknown, came twice, or arrived
                damaged.
        """
        self._open(bucket.version, "update_parameter_in_bucket")
        for entry in bucket.entries:
            spec = self._expected(bucket, entry)
            try:
                part = arrived(entry.start, entry.start + entry.num_bytes)
            except RuntimeError as stopped:
                raise WeightSyncError(
                    f"{self._where(bucket.version)}: the bytes of parameter {entry.name!r} in bucket "
                    f"{bucket.index} did not arrive: {stopped}"
                ) from stopped
            found = digest_of(part, mode=self._mode) if len(part) == spec.num_bytes else None
            if found != entry.digest:
                raise WeightSyncError(
                    f"{self._where(bucket.version)}: parameter {entry.name!r} arrived damaged in bucket "
                    f"{bucket.index} "
                    f"({len(part)} bytes of {spec.num_bytes}, digest {found} instead of {entry.digest})"
                )
            self._touched = True
            self._digests[entry.name] = self._load(spec, part, found)
            self._num_bytes += len(part)
        return bucket.num_bytes

    def commit(self, version: int) -> UpdateReceipt:
        """Closes an update.

        Raises:
            WeightSyncError: parameters are missing.
        """
        self._open(version, "commit_update")
        missing = [name for name in self._specs if name not in self._digests]
        if missing:
            raise WeightSyncError(
                f"{self._where(version)}: {len(missing)} of {len(self._specs)} parameters never came, first "
                f"{missing[0]!r}"
            )
        self._manifest, self.broken = None, None
        return UpdateReceipt(
            version=version,
            rank=self._rank,
            num_parameters=len(self._specs),
            num_bytes=self._num_bytes,
            digest=combined(self._digests.items()),
        )

    def abort(self, version: int) -> int:
        """Gives an update up; an update that is not open is nothing to give up."""
        if self._manifest is not None and self._manifest.version == version:
            self._manifest = None
            if self._touched:
                self.broken = f"update {version} was given up halfway"
        return version

    def require_whole(self) -> None:
        """Raises StaleWeights while an update is open or was given up halfway."""
        if self._manifest is not None and self._touched:
            raise StaleWeights(
                f"rank {self._rank} is in the middle of update {self._manifest.version}; wait for its commit"
            )
        if self.broken:
            raise StaleWeights(
                f"rank {self._rank} holds mixed weights: {self.broken}; run a whole model_update first"
            )

    def _expected(self, bucket: Bucket, entry: BucketEntry) -> ParameterSpec:
        spec = self._specs.get(entry.name)
        if spec is None or entry.name in self._digests:
            why = "was not announced" if spec is None else "came twice"
            raise WeightSyncError(f"{self._where(bucket.version)}: parameter {entry.name!r} {why}")
        return spec

    def _open(self, version: int, phase: str) -> None:
        if self._manifest is None or self._manifest.version != version:
            now = "none" if self._manifest is None else str(self._manifest.version)
            raise WeightSyncError(
                f"target rank {self._rank}: {phase} for update {version}, but the open one is {now}"
            )

    def _where(self, version: int) -> str:
        return f"update {version} on target rank {self._rank}"

    def _check(self, manifest: Manifest) -> None:
        covered: dict[int, str] = {}
        for spec in manifest.parameters:
            homes = [self._named[name] for name in (spec.name, *spec.aliases) if name in self._named]
            if not homes:
                raise WeightSyncError(
                    f"{self._where(manifest.version)}: the source sends {spec.name!r}, which this model "
                    "does not have; "
                    f"source and target must be the same architecture"
                )
            for home in homes:
                if tuple(home.shape) != spec.shape:
                    raise WeightSyncError(
                        f"{self._where(manifest.version)}: {spec.name!r} has shape {spec.shape} at the "
                        "source and "
                        f"{tuple(home.shape)} here"
                    )
                before = covered.setdefault(id(home), spec.name)
                if before != spec.name:
                    raise WeightSyncError(
                        f"{self._where(manifest.version)}: {before!r} and {spec.name!r} are two parameters "
                        "at the source "
                        f"and one, tied, here; set tie_word_embeddings alike"
                    )
        for name, tensor in self._named.items():
            if id(tensor) not in covered:
                raise WeightSyncError(
                    f"{self._where(manifest.version)}: the source does not send {name!r}, which this model "
                    "needs"
                )

    def _load(self, spec: ParameterSpec, part: Bytes, digest: int) -> int:
        """Copies one parameter to every place that it has, and returns the digest of what is there now."""
        done: set[int] = set()
        for name in (spec.name, *spec.aliases):
            home = self._named.get(name)
            if home is None or id(home) in done:
                continue
            done.add(id(home))
            if copy_into(home, part, spec) and _is_plain(home, spec):
                digest = digest_of(bytes_of(home), mode=self._mode)
        return digest


def _is_plain(home: Tensor, spec: ParameterSpec) -> bool:
    """Returns whether a tensor holds exactly the bytes on the wire."""
    return not isinstance(home, DTensor) and home.dtype == dtype_of(spec.dtype) and home.is_contiguous()


def copy_into(home: Tensor, part: Bytes, spec: ParameterSpec) -> bool:
    """Copies wire bytes into a tensor, sharded or not, converting the dtype where it differs.

    Returns:
        False when they are there already, because they were received in place.
    """
    run = part if isinstance(part, Tensor) else tensor_over(part)
    if not isinstance(home, DTensor) and len(run) and run.data_ptr() == home.data_ptr():
        return False
    copy_part(home, run.view(dtype_of(spec.dtype)).view(spec.shape))
    return True
