"""A value as it arrives after a send: each opening is private, and only memory that is written is copied."""

import copy
import mmap
import os
import pickle
import tempfile
import weakref
from typing import Any


class Parcel:
    """A value packed once, to be opened any number of times.

    Large buffers (arrays, batches) are kept once and mapped copy-on-write into every opening; all else is
    copied. A value that pickle cannot carry, such as one of a class inside a function, is deep-copied.

    Args:
        value: what is sent. It may change afterwards; the parcel does not.
    """

    def __init__(self, value: object) -> None:
        buffers: list[pickle.PickleBuffer] = []
        self._copy: object = None
        self._bounds: list[tuple[int, int]] = []
        try:
            self._data: bytes | None = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        except (pickle.PicklingError, TypeError, AttributeError):
            self._data = None
            self._copy = copy.deepcopy(value)
            return
        raw = [buffer.raw() for buffer in buffers]
        self._file = _memory_file() if sum(map(len, raw)) else None
        for piece in raw:
            start = self._bounds[-1][1] if self._bounds else 0
            start += -start % 64  # aligned, as arrays expect
            self._bounds.append((start, start + len(piece)))
            _write(self._file, start, piece)
        if self._file is not None:
            weakref.finalize(self, os.close, self._file)

    def open(self) -> Any:  # Any: whatever was packed
        """Return the value, private to the caller."""
        if self._data is None:
            return copy.deepcopy(self._copy)
        if self._file is None:
            return pickle.loads(self._data, buffers=[bytearray() for _ in self._bounds])
        private = memoryview(mmap.mmap(self._file, 0, access=mmap.ACCESS_COPY))
        return pickle.loads(self._data, buffers=[private[start:stop] for start, stop in self._bounds])


def _memory_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("roll-dispatch")
    file, path = tempfile.mkstemp(prefix="roll-dispatch-")
    os.unlink(path)
    return file


def _write(file: int | None, start: int, piece: memoryview) -> None:
    while file is not None and piece:
        count = os.pwrite(file, piece, start)
        start, piece = start + count, piece[count:]
