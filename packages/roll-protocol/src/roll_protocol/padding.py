"""Filling a batch up to a multiple of something, and taking exactly that off again."""

import operator
from typing import Self, TypeVar

import numpy as np

from roll_protocol.errors import ProtocolError, RowMismatchError
from roll_protocol.rows import Rows


class Padding(Rows):
    """The padding of a DataProto."""

    __slots__ = ()

    def pad_to_divisor(self, divisor: int) -> Self:
        """Return the batch with rows from its start appended until the row count is a multiple of
        ``divisor``.

        Args:
            divisor: A positive number, for example the number of workers.

        Returns:
            A batch whose added rows are marked in ``is_pad``. Metrics and other meta data are as before. A
            batch of no rows, and one that fits already, comes back as a view.
        """
        self._sync()
        if operator.index(divisor) < 1:
            raise ProtocolError(f"a batch is padded to a multiple of 1 or more, not of {divisor}")
        added = -self._rows % divisor
        if not self._rows or not added:
            return self._cut(0, self._rows)
        rows = np.arange(self._rows + added, dtype=np.int64) % self._rows
        padded = self._pick(rows)
        marks = np.arange(self._rows + added) >= self._rows
        padded._is_pad = marks if self._is_pad is None else marks | self._is_pad[rows]
        return padded

    def unpad(self, pad_size: int | None = None) -> Self:
        """Return the batch without the rows that ``pad_to_divisor`` added.

        Args:
            pad_size: How many rows to take off the end, for a batch that was computed from a padded one and
                does not carry its marks. None takes off the marked rows, wherever they are by now.

        Returns:
            A batch that shares memory with this one, if the padding stands at the end.

        Raises:
            RowMismatchError: ``pad_size`` is negative, larger than the batch, or differs from the number of
                marked rows.
        """
        self._sync()
        marked = 0 if self._is_pad is None else int(self._is_pad.sum())
        if pad_size is None or marked:
            if pad_size not in (None, marked):
                raise RowMismatchError(
                    f"{marked} rows are marked as padding and {pad_size} are to be taken off"
                )
            return self._without_marked(marked)
        if not 0 <= operator.index(pad_size) <= self._rows:
            raise RowMismatchError(f"a batch of {self._rows} rows cannot lose {pad_size} rows of padding")
        return self._cut(0, self._rows - pad_size)

    def _without_marked(self, marked: int) -> Self:
        keep = self._rows - marked
        if self._is_pad is None or not self._is_pad[:keep].any():
            part = self._cut(0, keep)
        else:
            part = self._pick(np.flatnonzero(~self._is_pad))
        part._is_pad = None
        return part


P = TypeVar("P", bound=Padding)


def pad_dataproto_to_divisor(data: P, size_divisor: int) -> tuple[P, int]:
    """Return ``data.pad_to_divisor(size_divisor)`` and how many rows it added, as ROLL's function does."""
    padded = data.pad_to_divisor(size_divisor)
    return padded, len(padded) - len(data)


def unpad_dataproto(data: P, pad_size: int) -> P:
    """Return ``data.unpad(pad_size)``, as ROLL's function does."""
    return data.unpad(pad_size)
