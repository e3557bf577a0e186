"""The state of a batch: its columns, its row count, its meta data, and the checks that keep them in step."""

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from roll_protocol.columns import Array, check_array, check_name, check_tensor
from roll_protocol.errors import ColumnError, ColumnNotFoundError, RowMismatchError
from roll_protocol.lent import Arrays, Tensors, raw
from roll_protocol.metrics import Stamp, stamped

METRICS = "metrics"


class Frame:
    """Columns with one row count, row identities, padding marks and meta data.

    Columns are kept in two plain dictionaries. A TensorDict and a checked dictionary are built over them
    when the user asks for ``batch`` or ``non_tensor_batch``; from then on those are the truth, and every
    operation reads them again.
    """

    __slots__ = (
        "_arrays",
        "_dims",
        "_frozen",
        "_has_batch",
        "_is_pad",
        "_meta",
        "_row_ids",
        "_rows",
        "_shown",
        "_stamps",
        "_tensors",
        "_view",
    )

    _tensors: dict[str, Tensor]
    _arrays: dict[str, Array]
    _frozen: set[str]
    """Names of the columns that lie in memory nobody may write to."""
    _rows: int
    _dims: tuple[int, ...]
    """Batch dimensions after the rows, when there are several."""
    _has_batch: bool
    _view: TensorDictBase | None
    _shown: Arrays | None
    _meta: dict[str, Any]  # meta data may be anything
    _stamps: Mapping[str, Stamp]
    """Identity of the plain values in ``meta_info["metrics"]``."""
    _row_ids: Array | None
    _is_pad: Array | None

    def _fill(
        self,
        tensors: dict[str, Tensor] | None,
        arrays: dict[str, Array],
        rows: int,
        meta: dict[str, Any],  # see _meta
        *,
        frozen: Iterable[str] = (),
        dims: tuple[int, ...] = (),
        row_ids: Array | None = None,
        is_pad: Array | None = None,
    ) -> Self:
        self._has_batch = tensors is not None
        self._tensors = {} if tensors is None else tensors
        self._arrays = arrays
        self._rows = rows
        self._meta = meta
        self._frozen = {name for name in frozen if name in self._tensors or name in arrays}
        self._dims = dims
        self._row_ids = row_ids
        self._is_pad = is_pad
        self._view = None
        self._shown = None
        self._stamps = {}
        return self

    def _new(self, *args: Any, **kwargs: Any) -> Self:  # the signature of _fill
        other = object.__new__(type(self))
        mine = getattr(self, "__dict__", None)
        if mine:
            vars(other).update(mine)  # what a subclass keeps besides
        return other._fill(*args, **kwargs)

    # -- reading -------------------------------------------------------------------------------------------

    def _sync(self) -> None:
        """Take over what was written through ``batch`` and ``non_tensor_batch``, and check it."""
        if self._view is None and self._shown is None:
            return
        frozen = self._frozen
        if self._view is not None:
            self._read_view(self._view)
            store = _store(self._view)
            frozen = (set() if store is None else store.frozen) | (frozen & self._arrays.keys())
        if self._shown is not None:
            self._arrays = raw(self._shown)
            frozen = (frozen & self._tensors.keys()) | self._shown.frozen
        self._frozen = {name for name in frozen if name in self._tensors or name in self._arrays}
        self._check()

    def _read_view(self, view: TensorDictBase) -> None:
        store = _store(view)
        entries: dict[str, Any] = dict(view.items()) if store is None else raw(store)  # checked below
        for name, tensor in entries.items():
            if type(tensor) is not Tensor or tensor.layout is not torch.strided or tensor.is_nested:
                check_tensor(check_name(name), tensor)
        self._tensors = entries
        self._has_batch = True
        self._rows, *dims = view.batch_size
        self._dims = tuple(dims)

    def _check(self) -> None:
        rows = self._rows
        if not self._has_batch and not self._tensors:
            rows = len(next(iter(self._arrays.values()))) if self._arrays else rows
            if self._row_ids is None and self._is_pad is None:
                self._rows = rows
        for name, array in self._arrays.items():
            if len(array) != self._rows:
                raise ColumnError(
                    f"column {name!r} has {len(array)} rows and the batch has {self._rows}; "
                    "all columns share one row count"
                )
            if name in self._tensors:
                raise ColumnError(
                    f"column {name!r} is in batch and in non_tensor_batch; a name stands for one "
                    "column, delete one"
                )
        for what, marks in (("row_ids", self._row_ids), ("is_pad", self._is_pad)):
            if marks is not None and len(marks) != self._rows:
                raise RowMismatchError(f"{what} has {len(marks)} entries and the batch has {self._rows} rows")

    def _column(self, name: str) -> Tensor | Array:
        """Return a column as it lies; it may be frozen."""
        if name in self._tensors:
            return self._tensors[name]
        if name in self._arrays:
            return self._arrays[name]
        raise ColumnNotFoundError(f"no column named {name!r}; the batch has {self._names()}")

    def _names(self) -> list[str]:
        return [*self._tensors, *self._arrays]

    def _is_bare(self) -> bool:
        """Tell whether there is only meta data."""
        return not self._has_batch and not self._arrays and self._rows == 0

    def _alias(self) -> Self:
        """Return a batch of its own that shares the memory of every column."""
        return self._new(
            dict(self._tensors) if self._has_batch else None,
            dict(self._arrays),
            self._rows,
            self._part_meta(),
            frozen=self._frozen,
            dims=self._dims,
            row_ids=self._row_ids,
            is_pad=self._is_pad,
        )

    # -- writing -------------------------------------------------------------------------------------------

    def _put(self, name: str, value: object) -> None:
        check_name(name)
        if isinstance(value, Tensor):
            self._put_tensor(name, check_tensor(name, value, dims=1 + len(self._dims)))
        else:
            self._put_array(name, check_array(name, value))

    def _check_rows(self, name: str, shape: tuple[int, ...]) -> None:
        if self._is_bare():
            return
        expected = (self._rows, *self._dims) if self._dims else (self._rows,)
        if tuple(shape[: len(expected)]) != expected:
            raise ColumnError(
                f"column {name!r} has shape {tuple(shape)} and the batch has {self._rows} rows"
                f"{f' in batch dimensions {expected}' if self._dims else ''}; all columns share one row count"
            )

    def _put_tensor(self, name: str, value: Tensor) -> None:
        self._check_rows(name, tuple(value.shape[: 1 + len(self._dims)]))
        if self._is_bare():
            self._rows = value.shape[0]
        if name in self._arrays:
            self._drop(name)
        if self._view is not None:
            self._view[name] = value
        self._tensors[name] = value
        self._frozen.discard(name)
        self._has_batch = True
        if self._shown is not None:
            self._shown.rows = self._rows

    def _put_array(self, name: str, value: Array) -> None:
        self._check_rows(name, (len(value), *self._dims))
        if self._is_bare():
            self._rows = len(value)
        if name in self._tensors:
            self._drop(name)
        if self._shown is not None:
            self._shown[name] = value
        self._arrays[name] = value
        self._frozen.discard(name)

    def _drop(self, name: str) -> None:
        """Take a column out; the rows stay, also when it was the last column."""
        if name in self._tensors:
            if self._view is not None:
                del self._view[name]
            self._tensors.pop(name, None)
        else:
            if self._shown is not None:
                del self._shown[name]
            self._arrays.pop(name, None)
            if not self._arrays:
                self._has_batch = True
        self._frozen.discard(name)

    # -- what the user sees --------------------------------------------------------------------------------

    @property
    def batch(self) -> TensorDictBase | None:
        """The tensor columns as a TensorDict, or None when there are no tensors and never were.

        Writing to it writes to this batch. A column of a received batch is copied out of shared memory when
        it is read here.
        """
        self._sync()
        if self._view is None and self._has_batch:
            size = torch.Size((self._rows, *self._dims))
            if self._frozen.isdisjoint(self._tensors):
                self._view = TensorDict(self._tensors, batch_size=size)
            else:
                self._view = TensorDict({}, batch_size=size)
                self._view._tensordict = Tensors(self._tensors, self._frozen)
        return self._view

    @batch.setter
    def batch(self, value: TensorDictBase | None) -> None:
        self._sync()
        other = object.__new__(Frame)._fill(None, dict(self._arrays), self._rows, {}, frozen=self._frozen)
        other._row_ids, other._is_pad = self._row_ids, self._is_pad
        if value is None:
            other._check()
        else:
            other._adopt(value)
        self._tensors, self._has_batch, self._view = other._tensors, other._has_batch, other._view
        self._rows, self._dims = other._rows, other._dims
        self._frozen = other._frozen
        if self._shown is not None:
            self._shown = Arrays(self._shown, self._frozen, self._rows)

    def _adopt(self, value: TensorDictBase) -> None:
        if not isinstance(value, TensorDictBase):
            raise ColumnError(
                f"batch is a TensorDict or None, not {type(value).__name__}; from_dict makes one of a "
                "dictionary"
            )
        if not value.batch_size:
            raise ColumnError("batch has no batch dimension; make it with TensorDict(..., batch_size=[rows])")
        self._view = value
        self._sync()

    @property
    def non_tensor_batch(self) -> dict[str, Array]:
        """The array columns; writing to the dictionary writes to this batch and is checked."""
        self._sync()
        if self._shown is None:
            self._shown = Arrays(self._arrays, self._frozen, None if self._is_bare() else self._rows)
        return self._shown

    @non_tensor_batch.setter
    def non_tensor_batch(self, value: Mapping[str, Array] | None) -> None:
        self._sync()
        arrays = {check_name(name): check_array(name, array) for name, array in raw(value or {}).items()}
        frozen = value.frozen if isinstance(value, Arrays) else set()
        other = object.__new__(Frame)._fill(
            dict(self._tensors) if self._has_batch else None, arrays, self._rows, {}, dims=self._dims
        )
        other._row_ids, other._is_pad = self._row_ids, self._is_pad
        if not other._has_batch and not arrays:
            other._rows = 0 if self._row_ids is None and self._is_pad is None else self._rows
        other._check()
        self._arrays, self._rows, self._shown = arrays, other._rows, None
        self._frozen = {*(name for name in self._frozen if name in self._tensors), *(frozen & arrays.keys())}

    @property
    def meta_info(self) -> dict[str, Any]:  # see _meta
        """Meta data of the batch as a whole; each part gets a shallow copy."""
        return self._meta

    @meta_info.setter
    def meta_info(self, value: Mapping[str, Any] | None) -> None:  # see _meta
        self._meta = checked_meta(value)
        self._stamps = {}

    @property
    def row_ids(self) -> Array | None:
        """Identity of each row, shape [rows], or None; kept by every operation on rows."""
        return self._row_ids

    @row_ids.setter
    def row_ids(self, value: object) -> None:
        self._sync()
        self._row_ids = None if value is None else checked_ids(value, self._rows)

    @property
    def is_pad(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which rows were added by ``pad_to_divisor``, bool of shape [rows]."""
        self._sync()
        return np.zeros(self._rows, dtype=bool) if self._is_pad is None else self._is_pad.copy()

    def _part_meta(self) -> dict[str, Any]:  # see _meta
        """Return the meta data that a part gets: a shallow copy, in which each metric knows which emission
        it is."""
        meta = dict(self._meta)
        metrics = meta.get(METRICS)
        if isinstance(metrics, dict) and metrics:
            mine = stamped(metrics, self._stamps)
            self._stamps = dict(mine.stamps)  # of its own: what the part writes is its own emission
            meta[METRICS] = mine
        return meta


def _store(view: TensorDictBase) -> Tensors | None:
    """Return the entries of a TensorDict that hands out copies, or None of another."""
    store = getattr(view, "_tensordict", None)
    return store if isinstance(store, Tensors) else None


def checked_meta(value: object) -> dict[str, Any]:  # see Frame._meta
    """Return a dictionary of its own with the given meta data."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ColumnError(f"meta_info is a dictionary, not {type(value).__name__} {value!r:.60}")
    return dict(value)


def checked_ids(value: object, rows: int) -> Array:
    """Return row identities as an array of their own, one entry a row."""
    ids = value.detach().cpu().numpy().copy() if isinstance(value, Tensor) else np.array(value)
    if not rows and ids.size == 0:
        ids = np.zeros(0, dtype=np.int64)  # an empty list has no type of its own
    if ids.shape != (rows,) or ids.dtype.kind not in "iuUS":
        raise RowMismatchError(
            f"row_ids are {rows} integers or strings, one a row, not {ids.dtype} of shape {ids.shape}; "
            "with_row_ids() makes new ones"
        )
    ids.flags.writeable = False  # parts share it
    return ids
