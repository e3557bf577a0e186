"""Choosing, cutting and repeating rows."""

import operator
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from roll_protocol.columns import Array
from roll_protocol.errors import ProtocolError, RowIndexError
from roll_protocol.frame import Frame
from roll_protocol.ragged import cut, pick

Index = np.ndarray[Any, np.dtype[np.int64]]


class Rows(Frame):
    """The operations on rows of a DataProto."""

    __slots__ = ()

    def __len__(self) -> int:
        self._sync()
        return self._rows

    def __iter__(self) -> Iterator[Self]:
        """Iterate over the rows, each a batch of one row."""
        self._sync()
        return (self._cut(row, row + 1) for row in range(self._rows))

    def _cut(self, start: int, stop: int, step: int = 1) -> Self:
        """Return rows as views; the bounds are inside the batch and the step is positive."""
        part = slice(start, stop, step)
        return self._new(
            {name: cut(tensor, part) for name, tensor in self._tensors.items()} if self._has_batch else None,
            {name: array[part] for name, array in self._arrays.items()},
            max(0, (stop - start + step - 1) // step),
            self._part_meta(),
            frozen=self._frozen,
            dims=self._dims,
            row_ids=None if self._row_ids is None else self._row_ids[part],
            is_pad=None if self._is_pad is None else self._is_pad[part],
        )

    def _pick(self, index: Index) -> Self:
        """Return rows as copies; every entry of the index is inside the batch."""
        chosen = torch.from_numpy(index)
        return self._new(
            {name: pick(tensor, chosen) for name, tensor in self._tensors.items()}
            if self._has_batch
            else None,
            {name: array.take(index, axis=0) for name, array in self._arrays.items()},
            len(index),
            self._part_meta(),
            dims=self._dims,
            row_ids=None if self._row_ids is None else self._row_ids[index],
            is_pad=None if self._is_pad is None else self._is_pad[index],
        )

    def slice(self, start: int | None = None, end: int | None = None, step: int | None = None) -> Self:
        """Return the rows of a Python slice.

        Args:
            start, end, step: As in ``list[start:end:step]``; any of them may be None or negative.

        Returns:
            A batch that shares memory with this one; with a negative step a copy, since torch has no such
            view.
        """
        self._sync()
        first, stop, stride = slice(start, end, step).indices(self._rows)
        if stride > 0:
            return self._cut(first, max(first, stop), stride)
        return self._pick(np.arange(first, stop, stride, dtype=np.int64))

    def select_idxs(self, idxs: Sequence[int] | Sequence[bool] | Array | Tensor) -> Self:
        """Return the rows that an index or a mask names, in its order.

        Args:
            idxs: Row numbers (negative ones count from the end, repeats allowed) or one bool a row.

        Returns:
            A batch with tensors of its own; objects of object columns are shared.

        Raises:
            RowIndexError: A number is outside the batch, or a mask is not as long as the batch.
        """
        self._sync()
        return self._pick(self._index(idxs))

    def _index(self, idxs: object) -> Index:
        """Return row numbers, all of them inside the batch and none negative."""
        index = idxs.detach().cpu().numpy() if isinstance(idxs, Tensor) else np.asarray(idxs)
        if index.ndim != 1:
            raise RowIndexError(
                f"rows are chosen by a one-dimensional index or mask, not one of shape {index.shape}"
            )
        if index.dtype == bool:
            if len(index) != self._rows:
                raise RowIndexError(
                    f"a mask has one entry a row: it has {len(index)} and the batch {self._rows}"
                )
            return np.flatnonzero(index)
        if index.size == 0:
            return np.zeros(0, dtype=np.int64)
        if index.dtype.kind not in "iu":
            raise RowIndexError(f"rows are chosen by integers or bools, not by {index.dtype}")
        low, high = int(index.min()), int(index.max())
        if low < -self._rows or high >= self._rows:
            raise RowIndexError(
                f"row {low if low < -self._rows else high} is outside a batch of {self._rows} rows"
            )
        index = np.array(index, dtype=np.int64)  # a copy: torch takes no reversed or read-only array
        return np.where(index < 0, index + self._rows, index) if low < 0 else index

    def _row(self, index: object) -> Self:
        row = operator.index(index)  # type: ignore[arg-type]  # the caller has checked that it is a number
        if not -self._rows <= row < self._rows:
            raise RowIndexError(f"row {row} is outside a batch of {self._rows} rows")
        row += self._rows if row < 0 else 0
        return self._cut(row, row + 1)

    def reorder(self, indices: Sequence[int] | Array | Tensor) -> Self:
        """Put the rows of this batch into another order, in place.

        Args:
            indices: A permutation of the row numbers; row ``i`` becomes what row ``indices[i]`` was.

        Returns:
            This batch.

        Raises:
            RowIndexError: It is not a permutation; ``select_idxs`` drops and repeats rows.
        """
        self._sync()
        index = self._index(indices)
        if len(index) != self._rows or np.bincount(index, minlength=self._rows).max(initial=0) > 1:
            raise RowIndexError(
                f"reorder takes a permutation of {self._rows} rows, not {len(index)} numbers with "
                "repeats or gaps; "
                "select_idxs drops and repeats rows"
            )
        return self._become(self._pick(index))

    def _become(self, other: Frame) -> Self:
        """Take over the rows and columns of another batch; meta data stays."""
        self._fill(
            other._tensors if other._has_batch else None,
            other._arrays,
            other._rows,
            self._meta,
            frozen=other._frozen,
            dims=other._dims,
            row_ids=other._row_ids,
            is_pad=other._is_pad,
        )
        return self

    def repeat(self, repeat_times: int = 2, interleave: bool = True) -> Self:
        """Return every row several times.

        Args:
            repeat_times: How often; 0 gives a batch of no rows.
            interleave: True gives rows 0, 0, 1, 1; False gives 0, 1, 0, 1.

        Returns:
            A batch with tensors of its own. Repeated rows keep the identity of the row that they repeat.
        """
        self._sync()
        if operator.index(repeat_times) < 0:
            raise ProtocolError(f"rows are repeated 0 or more times, not {repeat_times}")
        rows = np.arange(self._rows, dtype=np.int64)
        return self._pick(rows.repeat(repeat_times) if interleave else np.tile(rows, repeat_times))

    def chunk(self, chunks: int) -> list[Self]:
        """Return the batch in a number of parts whose sizes differ by at most one, the larger ones first.

        Args:
            chunks: How many parts. With fewer rows than parts the last parts are empty.

        Returns:
            Batches that share memory with this one.
        """
        self._sync()
        if operator.index(chunks) < 1:
            raise ProtocolError(f"a batch is cut into 1 or more parts, not {chunks}")
        size, larger = divmod(self._rows, chunks)
        bounds = [part * size + min(part, larger) for part in range(chunks + 1)]
        return [self._cut(start, stop) for start, stop in pairwise(bounds)]

    def split(self, size: int) -> list[Self]:
        """Return the batch in parts of ``size`` rows; the last may be smaller, and no rows give no parts.

        Returns:
            Batches that share memory with this one.
        """
        self._sync()
        if operator.index(size) < 1:
            raise ProtocolError(f"a part has 1 or more rows, not {size}")
        return [self._cut(start, min(start + size, self._rows)) for start in range(0, self._rows, size)]

    def with_row_ids(self, ids: object = None) -> Self:
        """Return the batch, sharing its memory, with an identity for each row.

        Args:
            ids: Integers or strings, shape [rows]; None draws numbers that no other batch has.

        Raises:
            RowMismatchError: There is not one id for each row.
        """
        self._sync()
        part = self._alias()
        if ids is None:
            ids = np.random.default_rng().integers(2**62, size=self._rows, dtype=np.int64)
        part.row_ids = ids
        return part
