"""Files: a batch as one safetensors file that runs no code when it is read and is whole or an error.

Tensor columns stand under their own names, so that any safetensors reader finds them. Everything else (arrays, objects, meta data, row
identities) stands in further entries that the manifest, a JSON text in the file's metadata, describes. The metadata also hold
the SHA-256 of the whole file, taken with the digits of the sum itself replaced by zeros.
"""

import hashlib
import json
import math
import os
import re
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from roll_protocol.columns import Array
from roll_protocol.errors import ColumnError, MetricError, ProtocolError, StorageError
from roll_protocol.frame import Frame
from roll_protocol.plain import Encoder, Json, array_from, checked_shape, decode, dump, parse, tensor_from
from roll_protocol.wire import to_bytes

VERSION: Final = 1
MANIFEST: Final = "roll_protocol"
DIGEST: Final = "sha256"
_MAX_HEADER: Final = 100_000_000
_NATIVE: Final = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "float16": "F16", "bfloat16": "BF16",
    "int32": "I32", "uint32": "U32", "float32": "F32", "float64": "F64", "int64": "I64", "uint64": "U64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class _Writer:
    """Collects the entries of a file."""

    def __init__(self) -> None:
        self.entries: dict[str, tuple[str, tuple[int, ...], Bytes]] = {}

    def add(self, name: str, dtype: str, shape: Iterable[int], data: Bytes) -> str:
        """Add an entry under ``name``, or under a longer name when that is taken, and return the name."""
        while name in self.entries or name == "__metadata__":
            name += "'"
        self.entries[name] = dtype, tuple(shape), data
        return name

    def add_bytes(self, name: str, data: Bytes) -> str:
        return self.add(name, "U8", (len(data),), data)

    def add_json(self, name: str, value: Json) -> str:
        return self.add_bytes(name, np.frombuffer(dump(value), dtype=np.uint8))

    def write(self, path: Path, manifest: Json) -> None:
        """Write the file beside its place and move it there when it is complete."""
        order = sorted(self.entries.items(), key=lambda item: -_itemsize(item[1][0]))
        header: dict[str, Any] = {"__metadata__": {MANIFEST: dump(manifest).decode(), DIGEST: "0" * 64}}  # JSON
        start = 0
        for name, (dtype, shape, data) in order:
            header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, start + len(data)]}
            start += len(data)
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        blocks = [struct.pack("<Q", len(text)), text, *(memoryview(data) for _, (_, _, data) in order)]
        digest = hashlib.sha256()
        for block in blocks:
            digest.update(block)
        mark = f'"{DIGEST}":"'.encode()
        blocks[1] = text.replace(mark + b"0" * 64, mark + digest.hexdigest().encode(), 1)
        beside = path.with_name(f".{path.name}.{uuid4().hex}.part")
        try:
            with beside.open("wb") as file:
                file.writelines(blocks)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


def _itemsize(dtype: str) -> int:
    sizes = [torch.empty(0, dtype=getattr(torch, name)).element_size() for name, code in _NATIVE.items() if code == dtype]
    return sizes[0]


class Storage(Frame):
    """Saving and loading a DataProto."""

    __slots__ = ()

    def save(self, path: str | os.PathLike[str], *, allow_pickle: bool = False) -> None:
        """Write the batch to a file, which is complete or not there.

        Args:
            path: The file, in a directory that exists. A file that is there is replaced.
            allow_pickle: Pickle objects that have no plain form; the file can then only be loaded with ``allow_pickle=True``.

        Raises:
            StorageError: An object has no plain form and must not be pickled.
        """
        self._sync()
        out = _Writer()
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
        manifest = _manifest(path)
        if manifest.get("pickle") is not False and not allow_pickle:
            raise StorageError(
                f"{path} holds pickled objects, which run code when they are read; "
                "load it with allow_pickle=True if you trust whoever wrote it"
            )
        try:
            with safe_open(path, framework="pt") as file:
                return _build(object.__new__(cls), file, manifest, allow_pickle)
        except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError, RecursionError) as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(f"{path} does not hold a whole batch: {error}; write it again with save") from error


def _tensor_entry(out: _Writer, name: str, tensor: Tensor) -> Json:
    if tensor.is_nested:
        values, offsets = tensor.values(), tensor.offsets()  # type: ignore[attr-defined,no-untyped-call]  # untyped in torch
        return {
            "name": name,
            "values": _tensor_entry(out, name, values),
            "offsets": _tensor_entry(out, f"{name}.offsets", offsets),
        }
    dtype = str(tensor.dtype).removeprefix("torch.")
    data = to_bytes(tensor)
    key = out.add(name, _NATIVE[dtype], tensor.shape, data) if dtype in _NATIVE else out.add_bytes(name, data)
    return {"name": name, "key": key, "dtype": dtype, "shape": list(tensor.shape), "grad": tensor.requires_grad}


def _array_entry(out: _Writer, name: str, array: Array, plain: Any) -> Json:  # plain is the function inside save
    if array.dtype == object:
        return {"name": name, "objects": out.add_json(name, plain(array, f"column {name!r}"))}
    if array.dtype.hasobject or array.dtype.names is not None or array.dtype.kind not in "biufcSUmM":
        return {"name": name, "objects": out.add_json(name, plain(array, f"column {name!r}"))}
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.nbytes else np.zeros(0, dtype=np.uint8)
    return {"name": name, "key": out.add_bytes(name, data), "dtype": array.dtype.str, "shape": list(array.shape)}


def _manifest(path: Path) -> dict[str, Any]:  # JSON
    """Return the manifest of a file whose sum is right."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if not 2 <= length <= min(size - 8, _MAX_HEADER):
            raise StorageError(
                f"{path} is damaged or no batch: it has {size} bytes and claims a header of {length}; write it again with save"
            )
        text = file.read(length)
        header = parse(text, f"the header of {path}")
        metadata = header.get("__metadata__") if isinstance(header, dict) else None
        if not isinstance(metadata, dict) or not isinstance(metadata.get(MANIFEST), str):
            raise StorageError(f"{path} is a safetensors file that DataProto.save did not write; read it with safetensors")
        claimed = metadata.get(DIGEST)
        if not isinstance(claimed, str) or not re.fullmatch(r"[0-9a-f]{64}", claimed):
            raise StorageError(f"{path} is damaged: it lacks its {DIGEST}")
        digest = hashlib.sha256(prefix)
        digest.update(text.replace(claimed.encode(), b"0" * 64))
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != claimed:
        raise StorageError(f"{path} has changed since it was written: its {DIGEST} does not agree; restore it or write it again")
    manifest = parse(metadata[MANIFEST].encode(), f"the manifest of {path}")
    if not isinstance(manifest, dict) or manifest.get("version") != VERSION:
        raise StorageError(f"{path} has a manifest that this version of roll-protocol does not read")
    return manifest


def _build(out: Any, file: Any, manifest: Mapping[str, Any], allow_pickle: bool) -> Any:  # a Frame; safe_open is untyped
    (rows, *dims) = checked_shape([manifest["rows"], *manifest["dims"]])

    def objects(key: object) -> Any:  # whatever stands there
        return decode(parse(_data(file, key).tobytes(), f"entry {key!r}"), allow_pickle=allow_pickle)

    def array(entry: Any) -> Array:  # JSON
        value = array_from(_data(file, entry["key"]), entry["dtype"], entry["shape"]) if "key" in entry else objects(entry["objects"])
        if not isinstance(value, np.ndarray):
            raise StorageError(f"column {entry['name']!r} in the file is no array")
        return value

    meta = objects(manifest["meta"])
    if not isinstance(meta, dict):
        raise StorageError("the meta data in the file are no dictionary")
    out._fill(None, {}, rows, meta, dims=tuple(dims))
    out._has_batch = True
    try:
        for entry in manifest["tensors"]:
            out._put(entry["name"], _tensor(file, entry))
        for entry in manifest["arrays"]:
            out._put(entry["name"], array(entry))
        out.row_ids = None if manifest["row_ids"] is None else array(manifest["row_ids"])
    except (ColumnError, MetricError, ProtocolError) as error:
        raise StorageError(f"the file holds columns that do not belong together: {error}") from error
    if len(out._names()) != len(manifest["tensors"]) + len(manifest["arrays"]):
        raise StorageError("the file holds two columns of one name")
    if manifest["is_pad"] is not None:
        out._is_pad = array(manifest["is_pad"])
        if out._is_pad.dtype != bool or out._is_pad.shape != (rows,):
            raise StorageError("the padding marks in the file are not one bool a row")
    out._has_batch = bool(manifest["has_batch"]) or bool(out._tensors)
    if not out._has_batch and not out._arrays and rows:
        raise StorageError(f"the file claims {rows} rows and has no columns")
    return out


def _data(file: Any, key: object) -> Bytes:  # safe_open is untyped
    tensor = file.get_tensor(key)
    data: Bytes = tensor.reshape(-1).view(torch.uint8).numpy().copy()  # the file may change under a memory map
    return data


def _tensor(file: Any, entry: Mapping[str, Any]) -> Tensor:  # safe_open is untyped; JSON
    if "values" in entry:
        values, offsets = _tensor(file, entry["values"]), _tensor(file, entry["offsets"])
        _check_offsets(values, offsets)
        return torch.nested.nested_tensor_from_jagged(values, offsets)  # type: ignore[no-any-return]  # untyped in torch
    shape = checked_shape(entry["shape"])
    if math.prod(size for size in shape if size) >= 2**60:
        raise StorageError(f"the file claims an absurd shape {shape}")
    tensor = tensor_from(_data(file, entry["key"]), entry["dtype"], entry["shape"])
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
