"""Files: a batch as one safetensors file that runs no code when it is read and is whole or an error.

Tensor columns stand under their own names, so that any safetensors reader finds them. Everything else
(arrays, objects, meta data, row identities) stands in further entries that the manifest, a JSON text in the
file's metadata, describes. The metadata also hold the SHA-256 of the whole file, taken with the digits of
the sum itself replaced by zeros.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from roll_protocol.columns import Array
from roll_protocol.container import NATIVE, VERSION, Bytes, Writer, read_manifest
from roll_protocol.errors import ProtocolError, StorageError
from roll_protocol.frame import Frame
from roll_protocol.plain import Encoder, Json, array_from, checked_shape, decode, parse, tensor_from
from roll_protocol.ragged import jagged, values_and_offsets
from roll_protocol.wire import array_bytes, to_bytes

F = TypeVar("F", bound=Frame)
_DAMAGE = (
    SafetensorError,
    ProtocolError,
    KeyError,
    TypeError,
    ValueError,
    RuntimeError,
    RecursionError,
    MemoryError,
)


class Storage(Frame):
    """Saving and loading a DataProto."""

    __slots__ = ()

    def save(self, path: str | os.PathLike[str], *, allow_pickle: bool = False) -> None:
        """Write the batch to a file, which is complete or not there.

        Args:
            path: The file, in a directory that exists. A file that is there is replaced.
            allow_pickle: Pickle objects that have no plain form; the file can then only be loaded with
                ``allow_pickle=True``.

        Raises:
            StorageError: An object has no plain form and must not be pickled.
        """
        self._sync()
        out = Writer()
        pickled: list[bool] = []

        def plain(value: object, what: str) -> Json:
            encoder = Encoder(what, allow_pickle=allow_pickle)
            form = encoder.encode(value)
            pickled.append(encoder.pickled)
            return form

        manifest = {
            "version": VERSION,
            "rows": self._rows,
            "dims": list(self._dims),
            "has_batch": self._has_batch,
            "tensors": [_tensor_entry(out, name, tensor) for name, tensor in self._tensors.items()],
            "arrays": [_array_entry(out, name, array, plain) for name, array in self._arrays.items()],
            "meta": out.add_json("meta_info", plain(self._part_meta(), "meta_info")),
            "row_ids": None if self._row_ids is None else _array_entry(out, "row_ids", self._row_ids, plain),
            "is_pad": None if self._is_pad is None else _array_entry(out, "is_pad", self._is_pad, plain),
        }
        out.write(Path(path), manifest | {"pickle": any(pickled)})

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, allow_pickle: bool = False) -> Self:
        """Return the batch in a file that ``save`` wrote.

        Args:
            path: The file.
            allow_pickle: Read pickled objects too. They run code: say so only for a file that you trust.

        Raises:
            StorageError: The file is damaged, was written by something else, or needs ``allow_pickle``.
        """
        path = Path(path)
        manifest = read_manifest(path)
        if manifest.get("pickle") is not False and not allow_pickle:
            raise StorageError(
                f"{path} holds pickled objects, which run code when they are read; "
                "load it with allow_pickle=True if you trust whoever wrote it"
            )
        try:
            with safe_open(path, framework="pt") as file:
                return _Reader(file, manifest, allow_pickle=allow_pickle).fill(object.__new__(cls))
        except StorageError:
            raise
        except _DAMAGE as error:
            raise StorageError(
                f"{path} does not hold a whole batch: {error}; write it again with save"
            ) from error


def _tensor_entry(out: Writer, name: str, tensor: Tensor) -> Json:
    if tensor.is_nested:
        values, offsets = values_and_offsets(tensor)
        return {
            "name": name,
            "values": _tensor_entry(out, name, values),
            "offsets": _tensor_entry(out, f"{name}.offsets", offsets),
        }
    dtype = str(tensor.dtype).removeprefix("torch.")
    data = to_bytes(tensor)
    key = out.add(name, NATIVE[dtype], tensor.shape, data) if dtype in NATIVE else out.add_bytes(name, data)
    shape = list(tensor.shape)
    return {"name": name, "key": key, "dtype": dtype, "shape": shape, "grad": tensor.requires_grad}


def _array_entry(out: Writer, name: str, array: Array, plain: Callable[[object, str], Json]) -> Json:
    if array.dtype.hasobject or array.dtype.kind not in "biufcSUmM":
        return {"name": name, "objects": out.add_json(name, plain(array, f"column {name!r}"))}
    data = array_bytes(array) if array.nbytes else np.zeros(0, dtype=np.uint8)
    key = out.add_bytes(name, data)
    return {"name": name, "key": key, "dtype": array.dtype.str, "shape": list(array.shape)}


class _Reader:
    """Builds a batch from the entries of a file, none of which it believes."""

    def __init__(
        self, file: Any, manifest: Mapping[str, Any], *, allow_pickle: bool
    ) -> None:  # see load; JSON
        self.file = file
        self.manifest = manifest
        self.allow_pickle = allow_pickle

    def fill(self, out: F) -> F:
        """Give the columns and the meta data of the file to an empty batch."""
        rows, *dims = checked_shape([self.manifest["rows"], *self.manifest["dims"]])
        meta = self._objects(self.manifest["meta"])
        if not isinstance(meta, dict):
            raise StorageError("the meta data in the file are no dictionary")
        tensors, arrays = self.manifest["tensors"], self.manifest["arrays"]
        out._fill({}, {}, rows, meta, dims=tuple(dims))
        for entry in tensors:
            out._put(entry["name"], self._tensor(entry))
        for entry in arrays:
            out._put(entry["name"], self._array(entry))
        out._has_batch = bool(self.manifest["has_batch"]) or bool(tensors)
        if len(out._names()) != len(tensors) + len(arrays) or (rows and not out._has_batch and not arrays):
            raise StorageError("the file holds two columns of one name, or rows without columns")
        self._marks(out)
        return out

    def _marks(self, out: Frame) -> None:
        ids, is_pad = self.manifest["row_ids"], self.manifest["is_pad"]
        out.row_ids = None if ids is None else self._array(ids)
        out._is_pad = None if is_pad is None else self._array(is_pad)
        if out._is_pad is not None and (out._is_pad.dtype != bool or out._is_pad.shape != (out._rows,)):
            raise StorageError("the padding marks in the file are not one bool a row")

    def _data(self, key: object) -> Bytes:
        tensor: Tensor = self.file.get_tensor(key)
        return to_bytes(tensor).copy()  # the tensor lies in a memory map, under which the file may change

    def _objects(self, key: object) -> Any:  # whatever stands there
        return decode(parse(self._data(key).tobytes(), f"entry {key!r}"), allow_pickle=self.allow_pickle)

    def _array(self, entry: Mapping[str, Any]) -> Array:  # JSON
        if "key" in entry:
            return array_from(self._data(entry["key"]), entry["dtype"], entry["shape"])
        value = self._objects(entry["objects"])
        if not isinstance(value, np.ndarray):
            raise StorageError(f"column {entry['name']!r} in the file is no array")
        return value

    def _tensor(self, entry: Mapping[str, Any]) -> Tensor:  # JSON
        if "values" in entry:
            values, offsets = self._tensor(entry["values"]), self._tensor(entry["offsets"])
            _check_offsets(values, offsets)
            return jagged(values, offsets)
        tensor = tensor_from(self._data(entry["key"]), entry["dtype"], entry["shape"])
        return tensor.requires_grad_() if entry["grad"] is True else tensor


def _check_offsets(values: Tensor, offsets: Tensor) -> None:
    is_sound = (
        values.dim() >= 1
        and offsets.dtype == torch.int64
        and offsets.dim() == 1
        and len(offsets) >= 1
        and int(offsets[0]) == 0
        and int(offsets[-1]) == len(values)
        and bool((offsets.diff() >= 0).all())
    )
    if not is_sound:
        raise StorageError("the file holds a jagged column whose offsets do not fit its values")
