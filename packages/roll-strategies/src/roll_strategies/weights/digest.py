"""Short fingerprints of parameters' bytes."""

import zlib
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from roll_strategies.memory import Bytes, bytes_of, tensor_over

_BLOCK = 256
_BLOCKS = 64
_SMALL = 256 * 1024
"""Data of up to so many bytes is read whole."""
MODES = ("sampled", "full")


def digest_of(data: Bytes, *, mode: str = "sampled") -> int:
    """Returns a 32-bit digest.

    Args:
        data: uint8, one dimension; of a device only what is read is copied to the host.
        mode: `full` reads every byte; `sampled` reads the length, 64 blocks of 256 bytes spread evenly over
            the data and its last 256 bytes, and every byte of data up to 256 KiB.
    """
    start = zlib.crc32(len(data).to_bytes(8, "little"))
    if mode == "sampled" and len(data) > _SMALL:
        data = _sample(data if isinstance(data, Tensor) else tensor_over(data))
    here = bytes_of(data) if isinstance(data, Tensor) else np.ascontiguousarray(data)
    return zlib.crc32(here.data, start)


def _sample(data: Tensor) -> Tensor:
    step = (len(data) - _BLOCK) // (_BLOCKS - 1)
    return torch.cat([data.unfold(0, _BLOCK, step)[:_BLOCKS].reshape(-1), data[-_BLOCK:]])


def combined(digests: Iterable[tuple[str, int]]) -> int:
    """Returns one digest of named digests, in whatever order they come."""
    total = 0
    for name, digest in sorted(digests):
        total = zlib.crc32(f"{name}:{digest};".encode(), total)
    return total
