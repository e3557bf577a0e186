"""DataProto: rows of tensors and objects with meta data."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Self, cast, overload

import numpy as np
import torch
from tensordict import TensorDictBase
from torch import Tensor

from roll_protocol.columns import Array, check_array, check_name, check_tensor, object_array
from roll_protocol.equality import same, same_array, same_tensor
from roll_protocol.errors import ColumnError, ProtocolError, RowIndexError, UnresolvedReferenceError
from roll_protocol.fields import Fields
from roll_protocol.frame import METRICS, Frame, checked_meta
from roll_protocol.groups import Groups
from roll_protocol.iterator import Iterators
from roll_protocol.joining import Joins, MetaRule
from roll_protocol.lent import Arrays, raw
from roll_protocol.metrics import same_metrics
from roll_protocol.padding import Padding
from roll_protocol.ragged import jagged
from roll_protocol.refs import resolve_refs
from roll_protocol.storage import Storage
from roll_protocol.summary import Summaries
from roll_protocol.wire import boxed, pack_array, pack_tensor, unpack_array, unpack_tensor


class DataProto(Fields, Joins, Padding, Groups, Iterators, Summaries, Storage):
    """A batch of rows: tensor columns, array columns, and meta data of the whole.

    Args:
        batch: Tensor columns with the rows in the first dimension: a TensorDict, or None.
        non_tensor_batch: NumPy arrays with the rows in the first dimension.
        meta_info: Anything about the batch as a whole; ``meta_info["metrics"]`` holds metrics.
        row_ids: Identity of each row, integers or strings of shape [rows].

    Raises:
        ColumnError: The columns do not have one row count, or a name stands for two columns.

    Example:
        >>> batch = DataProto.from_single_dict({"x": torch.arange(4), "text": object_array(["a", "b", "c",
        "d"])})
        >>> [len(part) for part in batch.chunk(3)]
        [2, 1, 1]
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # batches are equal by value and can change

    def __init__(
        self,
        batch: TensorDictBase | None = None,
        non_tensor_batch: Mapping[str, Array] | None = None,
        meta_info: Mapping[str, Any] | None = None,  # meta data may be anything
        *,
        row_ids: object = None,
    ) -> None:
        self._fill(None, {}, 0, checked_meta(meta_info))
        if batch is not None:
            self._adopt(batch)
        for name, array in raw(non_tensor_batch or {}).items():
            if name in self._tensors:
                raise ColumnError(
                    f"column {name!r} is in batch and in non_tensor_batch; a name stands for one "
                    "column, delete one"
                )
            self._put_array(check_name(name), check_array(name, array))
        if isinstance(non_tensor_batch, Arrays):
            self._frozen |= non_tensor_batch.frozen & self._arrays.keys()
        if row_ids is not None:
            self.row_ids = row_ids

    # -- constructors --------------------------------------------------------------------------------------

    @classmethod
    def from_single_dict(
        cls,
        data: Mapping[str, Tensor | Array],
        meta_info: Mapping[str, Any] | None = None,  # see __init__
    ) -> Self:
        """Return a batch of the tensors and the NumPy arrays in one dictionary."""
        out = cls(meta_info=meta_info)
        for name, value in data.items():
            out._put(name, value)
        return out

    @classmethod
    def from_dict(
        cls,
        tensors: Mapping[str, Tensor] | None = None,
        non_tensors: Mapping[str, Sequence[object] | Array] | None = None,
        meta_info: Mapping[str, Any] | None = None,  # see __init__
        num_batch_dims: int = 1,
    ) -> Self:
        """Return a batch of tensors and of sequences with one object a row.

        Args:
            tensors: Columns that agree in their first ``num_batch_dims`` dimensions.
            non_tensors: NumPy arrays, taken as they are, and other sequences, of which each entry is one row.
            meta_info: Meta data of the batch as a whole.
            num_batch_dims: How many dimensions belong to ``batch.batch_size``; rows are the first of them.

        Raises:
            ColumnError: A column has another row count, or too few dimensions.
        """
        if operator.index(num_batch_dims) < 1:
            raise ProtocolError(
                f"the rows are a batch dimension, so num_batch_dims is 1 or more, not {num_batch_dims}"
            )
        columns = {
            name: check_tensor(check_name(name), t, dims=num_batch_dims)
            for name, t in (tensors or {}).items()
        }
        out = cls(meta_info=meta_info)
        if columns:
            size = next(iter(columns.values())).shape[:num_batch_dims]
            out._rows, out._dims, out._has_batch = size[0], tuple(size[1:]), True
        for name, tensor in columns.items():
            out._put(name, tensor)
        for name, values in (non_tensors or {}).items():
            if name in columns:
                raise ColumnError(
                    f"column {name!r} is in tensors and in non_tensors; a name stands for one column"
                )
            out._put(name, values if isinstance(values, np.ndarray) else _rows_of(name, values))
        return out

    @classmethod
    def from_rows(
        cls,
        rows: Sequence[Mapping[str, object]],
        meta_info: Mapping[str, Any] | None = None,  # see __init__
    ) -> Self:
        """Return a batch of one dictionary a row.

        Args:
            rows: Dictionaries with the same names. Tensors of one shape and dtype become a tensor column;
                tensors that differ in their first dimension only become a jagged one; numbers (int, float,
                bool) become a tensor column of shape [rows]; anything else an object column.

        Raises:
            ColumnError: A row lacks a name that another has.
        """
        out = cls(meta_info=meta_info)
        names = list(rows[0]) if rows else []
        for number, row in enumerate(rows):
            if row.keys() != rows[0].keys():
                odd = sorted(map(str, row.keys() ^ rows[0].keys()))
                raise ColumnError(f"row {number} and row 0 differ in {odd}; all rows have the same names")
        for name in names:
            out._put(name, _column_of([row[name] for row in rows]))
        return out

    # -- items ---------------------------------------------------------------------------------------------

    @overload
    def __getitem__(self, index: str) -> Any: ...  # a tensor or an array: the name decides

    @overload
    def __getitem__(self, index: int | slice | list[int] | list[bool] | Array | Tensor) -> Self: ...

    def __getitem__(self, index: object) -> object:
        """Return a column by its name, or rows: one by number, several by slice, list, array, tensor or
        mask."""
        self._sync()
        if isinstance(index, str):
            return self._lend(index)
        if isinstance(index, slice):
            return self.slice(index.start, index.stop, index.step)
        if isinstance(index, (bool, np.bool_)):
            raise RowIndexError(f"rows are not chosen by one bool {index}; a mask has one entry a row")
        if isinstance(index, (int, np.integer)) or (
            isinstance(index, (Tensor, np.ndarray)) and index.ndim == 0
        ):
            return self._row(index)
        if isinstance(index, (list, tuple, np.ndarray, Tensor)):
            return self._pick(self._index(index))
        raise RowIndexError(
            "a batch is indexed by a column name, a row number, a slice, a list or a mask, not by "
            f"{index!r:.60}"
        )

    def __eq__(self, other: object) -> bool:
        """Tell whether two batches have equal columns, rows, identities and meta data; NaN equals NaN."""
        if not isinstance(other, DataProto):
            return NotImplemented
        self._sync()
        other._sync()
        return (
            self._rows == other._rows
            and self._dims == other._dims
            and self._tensors.keys() == other._tensors.keys()
            and self._arrays.keys() == other._arrays.keys()
            and _same_marks(self, other)
            and _same_meta(self._meta, other._meta)
            and all(same_tensor(tensor, other._tensors[name]) for name, tensor in self._tensors.items())
            and all(same_array(array, other._arrays[name]) for name, array in self._arrays.items())
        )

    def __repr__(self) -> str:
        self._sync()
        tensors = [f"{name}: {str(t.dtype)[6:]}{list(t.shape)}" for name, t in self._tensors.items()]
        arrays = [f"{name}: {array.dtype}{list(array.shape)}" for name, array in self._arrays.items()]
        parts = [f"rows={self._rows}", *tensors, *arrays]
        if self._meta:
            parts.append(f"meta_info={list(self._meta)}")
        return f"{type(self).__name__}({', '.join(parts)})"

    # -- copies --------------------------------------------------------------------------------------------

    def __reduce_ex__(self, protocol: Any) -> tuple[object, ...]:  # object declares SupportsIndex
        self._sync()
        state = (
            {name: pack_tensor(tensor, protocol) for name, tensor in self._tensors.items()}
            if self._has_batch
            else None,
            {name: pack_array(array, protocol) for name, array in self._arrays.items()},
            self._rows,
            boxed(self._part_meta()),
            self._dims,
            self._row_ids,
            self._is_pad,
            getattr(self, "__dict__", None),
        )
        return _restore, (type(self), state)

    def __copy__(self) -> Self:
        self._sync()
        return self._alias()

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self.clone()

    # -- references ----------------------------------------------------------------------------------------

    @classmethod
    def materialize_concat(
        cls,
        data_refs: object,
        *,
        meta: Mapping[str, MetaRule] | MetaRule = "error",
        timeout_s: float | None = None,
    ) -> Self:
        """Fetch what a non-blocking cluster call returned and put it below one another.

        Args:
            data_refs: References (one, or a sequence), or batches, in any mixture.
            meta: As in ``concat``.
            timeout_s: How long to wait, or None for as long as it takes.

        Raises:
            UnresolvedReferenceError: Nothing installed can resolve a reference, or a value is no DataProto.
        """
        refs = list(data_refs) if isinstance(data_refs, (list, tuple)) else [data_refs]
        values = resolve_refs(refs, is_value=lambda value: isinstance(value, Frame), timeout_s=timeout_s)
        for place, value in enumerate(values):
            if not isinstance(value, DataProto):
                raise UnresolvedReferenceError(
                    f"reference {place} of {len(values)} stands for a {type(value).__name__} {value!r:.60}; "
                    "materialize_concat joins DataProtos, fetch other values with .result() or ray.get"
                )
        return cls.concat(cast("list[Self]", values), meta=meta)


def _restore(cls: type[DataProto], state: tuple[Any, ...]) -> DataProto:  # see DataProto.__reduce_ex__
    tensors, arrays, rows, meta, dims, row_ids, is_pad, extra = state
    opened = {name: unpack_array(packed) for name, packed in arrays.items()}
    out = object.__new__(cls)._fill(
        None if tensors is None else {name: unpack_tensor(packed) for name, packed in tensors.items()},
        {name: array for name, (array, _) in opened.items()},
        rows,
        meta,
        frozen={*(tensors or ()), *(name for name, (_, lent) in opened.items() if lent)},
        dims=dims,
        row_ids=None if row_ids is None else row_ids.copy(),
        is_pad=None if is_pad is None else is_pad.copy(),
    )
    if extra:
        vars(out).update(extra)
    return out


def _rows_of(name: str, values: object) -> Array:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Sequence):
        raise ColumnError(
            f"column {name!r} is a {type(values).__name__}; give a sequence with one entry a row"
        )
    return object_array(values)


def _column_of(values: list[Any]) -> Tensor | Array:  # a row may hold anything
    kinds = {type(value) for value in values}
    if kinds == {Tensor}:
        shapes = {value.shape for value in values}
        if len({value.dtype for value in values}) > 1 or len({value.device for value in values}) > 1:
            return object_array(values)
        if len(shapes) == 1:
            return torch.stack(values)
        if all(shapes) and len({shape[1:] for shape in shapes}) == 1:
            offsets = torch.tensor([0, *(len(value) for value in values)]).cumsum(0)
            return jagged(torch.cat(values), offsets)
    if kinds in ({int}, {float}, {bool}):
        return torch.tensor(values, dtype=torch.float64 if kinds == {float} else None)
    return object_array(values)


def _same_marks(left: Frame, right: Frame) -> bool:
    return same(left._row_ids, right._row_ids) and same(left.is_pad, right.is_pad)


def _same_meta(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    if left.keys() != right.keys():
        return False
    for name, value in left.items():
        if name == METRICS and isinstance(value, dict) and isinstance(right[name], dict):
            if not same_metrics(value, right[name]):
                return False
        elif not same(value, right[name]):
            return False
    return True
