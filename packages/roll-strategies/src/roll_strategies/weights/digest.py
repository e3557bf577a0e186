"""Short fingerprints of parameters' bytes."""

import zlib
from collections.abc import Iterable

import numpy as np

from roll_strategies.memory import Bytes

_BLOCK = 4096
_BLOCKS = 64
MODES = ("sampled", "full")


def digest_of(data: Bytes, *, mode: str = "sampled") -> int:
    """Returns a 32-bit digest.

    Args:
        data: uint8, one dimension.
        mode: `full` reads every byte; `sampled` reads the length and 64 blocks of 4 KiB spread over the
            data, which is every byte of data up to 256 KiB.
    """
    start = zlib.crc32(len(data).to_bytes(8, "little"))
    if mode == "full" or len(data) <= _BLOCK * _BLOCKS:
        return zlib.crc32(np.ascontiguousarray(data).data, start)
    last = len(data) - _BLOCK
    for index in range(_BLOCKS):
        offset = last * index // (_BLOCKS - 1)
        start = zlib.crc32(np.ascontiguousarray(data[offset : offset + _BLOCK]).data, start)
    return start


def combined(digests: Iterable[tuple[str, int]]) -> int:
    """Returns one digest of named digests, in whatever order they come."""
    total = 0
    for name, digest in sorted(digests):
        total = zlib.crc32(f"{name}:{digest};".encode(), total)
    return total
