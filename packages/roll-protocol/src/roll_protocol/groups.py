"""Grouping and sorting rows by the values of columns."""

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Any, Self, TypeAlias

import numpy as np
from torch import Tensor

from roll_protocol.columns import Array
from roll_protocol.errors import ColumnError
from roll_protocol.rows import Rows

Codes: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
_NAN = float("nan")


class Groups(Rows):
    """The grouping and the sorting of a DataProto."""

    __slots__ = ()

    def group_by(self, keys: str | Sequence[str]) -> dict[Any, Self]:  # keys are the values of the columns
        """Return the rows in groups with equal values, in the order in which each value appears first.

        Args:
            keys: A column, or several. NaN equals NaN; values of object columns are compared as in a
                dictionary.

        Returns:
            Batches by value: the Python value of one column (a tuple for a row of several numbers), or the
            tuple of values of several columns. Rows keep their order inside a group. The groups share no
            memory with this batch.

        Raises:
            ColumnError: A value cannot be a key, such as a dictionary.
        """
        self._sync()
        names = [keys] if isinstance(keys, str) else list(keys)
        if not names:
            raise ColumnError("group_by takes the name of one column or more; none was given")
        codes = _codes(names[0], self._column(names[0]))
        for name in names[1:]:
            more = _codes(name, self._column(name))
            codes = _dense(codes * (int(more.max(initial=0)) + 1) + more)
        if not self._rows:
            return {}
        order, bounds = _segments(codes)
        arranged = self._pick(order)
        out: dict[Any, Self] = {}  # see the return type
        for start, stop in pairwise(bounds):
            values = tuple(_value(name, self._column(name), int(order[start])) for name in names)
            out[values[0] if isinstance(keys, str) else values] = arranged._cut(start, stop)
        return out

    def sort_by(self, keys: str | Sequence[str], *, descending: bool = False) -> Self:
        """Return the rows sorted by the values of columns; equal rows keep their order.

        Args:
            keys: A column of one value a row, or several, the most important first.
            descending: Largest first.

        Returns:
            A batch with memory of its own.

        Raises:
            ColumnError: A column has several values a row, or values that have no order.
        """
        self._sync()
        names = [keys] if isinstance(keys, str) else list(keys)
        order = np.arange(self._rows, dtype=np.int64)
        for name in reversed(names):
            ranks = _ranks(name, self._column(name))[order]
            order = order[np.argsort(-ranks if descending else ranks, kind="stable")]
        return self._pick(order)


def _dense(codes: Codes) -> Codes:
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


def _segments(codes: Codes) -> tuple[Codes, list[int]]:
    """Return row numbers group by group, in first-appearance order, and where each group starts."""
    order = np.argsort(codes, kind="stable")
    arranged = codes[order]
    starts = np.flatnonzero(np.r_[True, arranged[1:] != arranged[:-1]])
    ends = np.r_[starts[1:], len(codes)]
    groups = np.argsort(order[starts], kind="stable")
    sizes = (ends - starts)[groups]
    shift = np.repeat(starts[groups] - np.r_[0, sizes.cumsum()[:-1]], sizes)
    return order[np.arange(len(codes)) + shift], [0, *sizes.cumsum().tolist()]


def _numbers(name: str, column: Tensor | Array) -> Array:
    """Return a column of numbers or strings as an array in which equal values have one form."""
    if isinstance(column, Tensor):
        if column.is_nested:
            raise ColumnError(
                f"column {name!r} is jagged, which cannot be a key; group by its lengths or by an id"
            )
        tensor = column.detach().cpu().resolve_conj().resolve_neg()
        if tensor.dtype.is_floating_point and tensor.dtype.itemsize < 4:
            tensor = tensor.float()
        array: Array = tensor.numpy()
    else:
        array = column
    if array.dtype.kind in "fc":
        with np.errstate(invalid="ignore"):  # signalling NaN
            array = np.where(np.isnan(array), np.array(_NAN, array.dtype), array + 0)  # one NaN, one zero
    return array


def _codes(name: str, column: Tensor | Array) -> Codes:
    """Return a number for each row, equal where the values are."""
    if not isinstance(column, Tensor) and column.dtype == object:
        table: dict[Hashable, int] = {}
        return np.fromiter(
            (table.setdefault(_key(name, value), len(table)) for value in column), np.int64, len(column)
        )
    array = _numbers(name, column)
    if array.ndim > 1:
        rows = np.ascontiguousarray(array.reshape(len(array), -1))
        if not rows.shape[1]:
            return np.zeros(len(array), dtype=np.int64)
        array = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    if array.dtype.kind in "iub" and array.dtype.itemsize <= 8 and array.dtype != np.uint64:
        return array.astype(np.int64) if _is_small(array) else _dense(array)
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


def _is_small(array: Array) -> bool:
    return not array.size or (int(array.min()) >= 0 and int(array.max()) < 2**31)


def _key(name: str, value: object) -> Hashable:
    """Return a value that can be a key of a dictionary and is equal where ``value`` is."""
    if isinstance(value, (Tensor, np.ndarray)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return tuple(_key(name, entry) for entry in value)
    if isinstance(value, (float, np.floating)) and value != value:
        return _NAN
    if not isinstance(value, Hashable):
        raise ColumnError(
            f"column {name!r} holds a {type(value).__name__}, which cannot be a key; add a column "
            "with an id and use that"
        )
    return value


def _value(name: str, column: Tensor | Array, row: int) -> Hashable:
    if isinstance(column, Tensor) and column.is_nested:
        raise ColumnError(f"column {name!r} is jagged, which cannot be a key")
    value = column[row]
    return _key(name, value.tolist() if isinstance(value, (Tensor, np.ndarray, np.generic)) else value)


def _ranks(name: str, column: Tensor | Array) -> Codes:
    """Return the place of each row's value among all values."""
    if column.ndim != 1:
        raise ColumnError(
            f"column {name!r} has several values a row, which have no order; sort by one value a row"
        )
    array = column if not isinstance(column, Tensor) and column.dtype == object else _numbers(name, column)
    try:
        return np.unique(array, return_inverse=True)[1].astype(np.int64)
    except TypeError as error:
        raise ColumnError(
            f"column {name!r} has values without an order: {error}; sort by another column"
        ) from error
