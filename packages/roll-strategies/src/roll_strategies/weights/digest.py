"""Short fingerprints of parameters' bytes."""

import zlib
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from roll_strategies.memory import Array, Bytes, bytes_of

_BLOCK = 1024
_BLOCKS = 64
_SMALL = 256 * 1024
"""Data of up to so many bytes is read whole."""
MODES = ("sampled", "full")


def digest_of(data: Bytes, *, mode: str = "sampled") -> int:
    """Returns a 32-bit digest.

    Args:
        data: uint8, one dimension; of a device only what is read is copied to the host.
        mode: `full` reads every byte; `sampled` reads the length and 64 blocks of 1 KiB spread over the
            data, and every byte of data up to 256 KiB.
    """
    start = zlib.crc32(len(data).to_bytes(8, "little"))
    if mode == "full" or len(data) <= _SMALL:
        return zlib.crc32(_host(data).data, start)
    last = len(data) - _BLOCK
    offsets = [last * index // (_BLOCKS - 1) for index in range(_BLOCKS)]
    if isinstance(data, Tensor) and data.device.type != "cpu":
        return zlib.crc32(_host(torch.cat([data[o : o + _BLOCK] for o in offsets])).data, start)
    here = _host(data)
    for offset in offsets:
        start = zlib.crc32(here[offset : offset + _BLOCK].data, start)
    return start


def _host(data: Bytes) -> Array:
    return bytes_of(data) if isinstance(data, Tensor) else np.ascontiguousarray(data)


def combined(digests: Iterable[tuple[str, int]]) -> int:
    """Returns one digest of named digests, in whatever order they come."""
    total = 0
    for name, digest in sorted(digests):
        total = zlib.crc32(f"{name}:{digest};".encode(), total)
    return total
