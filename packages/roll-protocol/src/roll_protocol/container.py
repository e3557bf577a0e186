"""The file around a batch: a safetensors file with a manifest and a sum over the whole."""

import hashlib
import json
import os
import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Final
from uuid import uuid4

import numpy as np

from roll_protocol.errors import StorageError
from roll_protocol.plain import Json, dump, parse
from roll_protocol.wire import DTYPES

VERSION: Final = 1
MANIFEST: Final = "roll_protocol"
DIGEST: Final = "sha256"
_MAX_HEADER: Final = 100_000_000
NATIVE: Final = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "float64": "F64",
    "int64": "I64",
    "uint64": "U64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
"""The dtypes of torch that safetensors has, and its names for them; others are stored as bytes."""
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Writer:
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
        """Add bytes that the manifest explains."""
        return self.add(name, "U8", (len(data),), data)

    def add_json(self, name: str, value: Json) -> str:
        """Add a JSON text."""
        return self.add_bytes(name, np.frombuffer(dump(value), dtype=np.uint8))

    def write(self, path: Path, manifest: Json) -> None:
        """Write the file beside its place and move it there when it is complete."""
        order = sorted(self.entries.items(), key=lambda item: -_itemsize(item[1][0]))
        header: dict[str, Any] = {
            "__metadata__": {MANIFEST: dump(manifest).decode(), DIGEST: "0" * 64}
        }  # JSON
        start = 0
        for name, (dtype, shape, data) in order:
            header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, start + len(data)]}
            start += len(data)
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        blocks: list[bytes | memoryview[Any]] = [
            struct.pack("<Q", len(text)),
            text,
            *(data.data for _, (_, _, data) in order),
        ]
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
    return next(DTYPES[name].itemsize for name, code in NATIVE.items() if code == dtype)


def read_manifest(path: Path) -> dict[str, Any]:  # JSON
    """Return the manifest of a file whose sum is right.

    Raises:
        StorageError: It is damaged, or something else wrote it.
    """
    with path.open("rb") as file:
        prefix, text = _header(path, file)
        header = parse(text, f"the header of {path}")
        metadata = header.get("__metadata__") if isinstance(header, dict) else None
        if not isinstance(metadata, dict) or not isinstance(metadata.get(MANIFEST), str):
            raise StorageError(
                f"{path} is a safetensors file that DataProto.save did not write; read it with safetensors"
            )
        claimed = metadata.get(DIGEST)
        if not isinstance(claimed, str) or not re.fullmatch(r"[0-9a-f]{64}", claimed):
            raise StorageError(f"{path} is damaged: its {DIGEST} is missing; restore it or write it again")
        digest = hashlib.sha256(prefix)
        digest.update(text.replace(claimed.encode(), b"0" * 64))
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != claimed:
        raise StorageError(
            f"{path} has changed since it was written: its {DIGEST} does not agree; restore it or "
            "write it again"
        )
    manifest = parse(metadata[MANIFEST].encode(), f"the manifest of {path}")
    if not isinstance(manifest, dict) or manifest.get("version") != VERSION:
        raise StorageError(f"{path} has a manifest that this version of roll-protocol does not read")
    return manifest


def _header(path: Path, file: BinaryIO) -> tuple[bytes, bytes]:
    size = os.fstat(file.fileno()).st_size
    prefix = file.read(8)
    length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
    if not 2 <= length <= min(size - 8, _MAX_HEADER):
        raise StorageError(
            f"{path} is damaged or no batch: it has {size} bytes and claims a header of {length}; "
            "restore it or write it again with save"
        )
    return prefix, file.read(length)
