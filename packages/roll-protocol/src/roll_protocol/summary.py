"""Looking at a batch: sizes, a table of its columns, and other forms of it."""

from typing import Any

import numpy as np
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict
from torch import Tensor

from roll_protocol.columns import Array
from roll_protocol.errors import ColumnError
from roll_protocol.frame import Frame
from roll_protocol.ragged import values_and_offsets

_TORCH_KINDS = "biufc"


class Summaries(Frame):
    """The views of a DataProto that are for reading."""

    __slots__ = ()

    @property
    def nbytes(self) -> int:
        """How many bytes the columns take; of an object column the pointers, not the objects."""
        self._sync()
        return sum(_nbytes(self._column(name)) for name in self._names())

    def describe(self) -> str:
        """Return a table of the columns with their shapes, dtypes, bytes and places, and the names in
        ``meta_info``."""
        self._sync()
        rows = [("column", "kind", "dtype", "shape", "bytes", "device")]
        for name, tensor in self._tensors.items():
            kind = "jagged" if tensor.is_nested else "tensor"
            shape = _shape(tensor)
            rows.append(
                (name, kind, str(tensor.dtype)[6:], shape, _human(_nbytes(tensor)), str(tensor.device))
            )
        for name, array in self._arrays.items():
            rows.append((name, "array", str(array.dtype), str(list(array.shape)), _human(array.nbytes), "-"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        marks = [
            f"{self._rows} rows",
            _human(self.nbytes),
            *(["row_ids"] if self._row_ids is not None else []),
            *([f"{int(self._is_pad.sum())} rows of padding"] if self._is_pad is not None else []),
            f"meta_info: {', '.join(map(str, self._meta)) or '-'}",
        ]
        return "\n".join([*lines, " | ".join(marks)])

    def numpy(self, name: str, *, readonly: bool = True) -> Array:
        """Return a column as a NumPy array over the same memory.

        Args:
            name: An array column, or a tensor column on the CPU whose dtype NumPy knows.
            readonly: True never copies and the array refuses to be written to; False hands the column out
                for writing, which copies a received one once.

        Raises:
            ColumnError: NumPy cannot show the column.
        """
        self._sync()
        column = self._column(name) if readonly else self._lend(name)
        if isinstance(column, Tensor):
            column = _as_numpy(name, column)
        if not readonly:
            return column
        view = column.view()
        view.flags.writeable = False
        return view

    def as_tensordict(self) -> TensorDict:
        """Return a TensorDict with every column: numbers as tensors over the same memory, objects as
        NonTensorStack."""
        self._sync()
        out = TensorDict({}, batch_size=torch.Size((self._rows, *self._dims)))
        for name in self._tensors:
            out[name] = self._lend(name)
        for name in self._arrays:
            array = self._lend(name)
            assert isinstance(array, np.ndarray)
            if array.dtype.kind in _TORCH_KINDS and array.dtype.isnative and array.dtype.itemsize <= 16:
                out[name] = torch.from_numpy(array)
            elif self._rows:
                out[name] = NonTensorStack(*(NonTensorData(row) for row in array))
            else:
                out[name] = NonTensorData([], batch_size=out.batch_size)
        return out

    def _lend(self, name: str) -> Tensor | Array:
        """Return a column that may be written to; a received one is copied out of shared memory the first
        time."""
        column = self._column(name)
        if name not in self._frozen:
            return column
        lent: Any = (
            self.batch if name in self._tensors else self.non_tensor_batch
        )  # both are dictionaries of columns
        if name in self._tensors:
            self._tensors[name] = lent[name]
            return self._tensors[name]
        self._arrays[name] = lent[name]
        return self._arrays[name]


def _nbytes(column: Tensor | Array) -> int:
    if isinstance(column, Tensor) and column.is_nested:
        return sum(part.nbytes for part in values_and_offsets(column))
    return int(column.nbytes)


def _shape(tensor: Tensor) -> str:
    if not tensor.is_nested:
        return str(list(tensor.shape))
    return f"[{', '.join(str(size) if isinstance(size, int) else 'j' for size in tensor.shape)}]"


def _human(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _as_numpy(name: str, tensor: Tensor) -> Array:
    if tensor.is_nested:
        raise ColumnError(
            f"column {name!r} is jagged, which NumPy cannot show; read its values() and offsets()"
        )
    try:
        array: Array = tensor.detach().resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError) as error:
        raise ColumnError(
            f"NumPy cannot show column {name!r}, {tensor.dtype} on {tensor.device}: {error}; "
            "move it to the CPU with to('cpu') or convert it, as in batch['name'].float()"
        ) from error
    return array
