"""Values as JSON and back: what a batch carries besides its tensors, without pickle.

Plain JSON values stand for themselves. Anything else is an object with the key ``$``, which names what it is.
"""

import base64
import binascii
import json
import math
import pickle
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from torch import Tensor

from roll_protocol.columns import Array
from roll_protocol.errors import StorageError
from roll_protocol.metrics import Metric, Metrics, Stamp
from roll_protocol.reducers import Contribution
from roll_protocol.wire import DTYPES, as_tensor, to_bytes

TAG: Final = "$"
Json = Any  # what the json module reads and writes
_ARRAY_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f(2|4|8)|c(8|16)|[SU]\d{1,9}|[mM]8(\[\d*[A-Za-z]{1,2}\])?)")


class Encoder:
    """Turns values into JSON.

    Args:
        what: Where the values stand, for messages.
        allow_pickle: Whether a value that has no plain form is pickled; otherwise it is refused.
    """

    def __init__(self, what: str, *, allow_pickle: bool) -> None:
        self.what = what
        self.allow_pickle = allow_pickle
        self.pickled = False
        """Whether anything was pickled."""

    def encode(self, value: object) -> Json:
        """Return the JSON form of a value.

        Raises:
            StorageError: It has none and must not be pickled.
        """
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {TAG: "float", "v": repr(value)}  # type: ignore[arg-type]  # kind says so
        if kind is list:
            return [self.encode(entry) for entry in value]  # type: ignore[attr-defined]  # kind says so
        if kind is dict:
            return self._dict(value)  # type: ignore[arg-type]  # kind says so
        if kind in _ENCODE:
            return {TAG: _NAMES[kind], "v": _ENCODE[kind](self, value)}
        if isinstance(value, np.generic) and _ARRAY_DTYPE.fullmatch(value.dtype.str):
            return {TAG: "scalar", "t": value.dtype.str, "v": _text(value.tobytes())}
        if kind is np.ndarray and (value.dtype == object or _ARRAY_DTYPE.fullmatch(value.dtype.str)):  # type: ignore[attr-defined]  # kind says so
            return self._array(value)  # type: ignore[arg-type]  # kind says so
        return self._pickle(value)

    def _dict(self, value: dict[Any, Any]) -> Json:  # any dictionary
        if all(type(key) is str for key in value) and TAG not in value:
            return {key: self.encode(entry) for key, entry in value.items()}
        return {TAG: "dict", "v": [[self.encode(key), self.encode(entry)] for key, entry in value.items()]}

    def _array(self, value: Array) -> Json:
        if value.dtype == object:
            return {
                TAG: "objects",
                "s": list(value.shape),
                "v": [self.encode(entry) for entry in value.ravel()],
            }
        return {TAG: "array", "t": value.dtype.str, "s": list(value.shape), "v": _text(value.tobytes())}

    def _pickle(self, value: object) -> Json:
        if not self.allow_pickle:
            raise StorageError(
                f"{self.what} holds a {type(value).__module__}.{type(value).__qualname__}, which has "
                "no safe form in a file; "
                "convert it to plain values, or save and load with allow_pickle=True"
            )
        self.pickled = True
        return {TAG: "pickle", "v": _text(pickle.dumps(value))}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _parts(contributions: tuple[Contribution, ...], encoder: Encoder) -> Json:
    return [[part.id, encoder.encode(part.value), part.weight] for part in contributions]


def _tensor(encoder: Encoder, value: Tensor) -> Json:
    if value.is_nested:
        return encoder._pickle(value)
    dtype = str(value.dtype).removeprefix("torch.")
    return [dtype, list(value.shape), value.requires_grad, _text(to_bytes(value).tobytes())]


def _metrics(encoder: Encoder, value: Metrics) -> Json:
    stamps = {
        name: [stamp.reducer, _parts(stamp.contributions, encoder)]
        for name, stamp in value.stamps.items()
        if stamp.describes(value.get(name)) and not isinstance(stamp.seen, Metric)
    }
    return [encoder.encode(dict(value)), stamps]


_ENCODE: Final[dict[type, Callable[[Encoder, Any], Json]]] = {  # each takes the type of its key
    tuple: lambda encoder, value: [encoder.encode(entry) for entry in value],
    set: lambda encoder, value: [encoder.encode(entry) for entry in value],
    frozenset: lambda encoder, value: [encoder.encode(entry) for entry in value],
    bytes: lambda encoder, value: _text(value),
    complex: lambda encoder, value: [encoder.encode(value.real), encoder.encode(value.imag)],
    Tensor: _tensor,
    Metric: lambda encoder, value: [value.reducer, _parts(value.contributions, encoder)],
    Metrics: _metrics,
}
_NAMES: Final = {kind: kind.__name__.lower() for kind in _ENCODE}


def decode(value: Json, *, allow_pickle: bool) -> Any:  # whatever was encoded
    """Return the value behind a JSON form.

    Raises:
        StorageError: The form is not one that Encoder writes, or pickle is needed and not allowed.
    """

    def opened(entry: Json) -> Any:  # see decode
        return decode(entry, allow_pickle=allow_pickle)

    if isinstance(value, list):
        return [opened(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {key: opened(entry) for key, entry in value.items()}
    if value[TAG] == "pickle":
        return _unpickle(value.get("v"), allow_pickle)
    if value[TAG] not in _DECODE:
        raise StorageError(
            f"the file holds a value of an unknown kind {value[TAG]!r:.60}; it was written by something else"
        )
    try:
        return _DECODE[value[TAG]](opened, value)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, binascii.Error) as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"the file holds a malformed {value[TAG]!r}: {error}") from error


def _unpickle(text: object, allow_pickle: bool) -> Any:  # see decode
    if not allow_pickle:
        raise StorageError(
            "the file holds pickled values, which run code when they are read; "
            "load it with allow_pickle=True if you trust whoever wrote it"
        )
    return pickle.loads(base64.b64decode(str(text), validate=True))


def _bytes(text: object) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(bytearray(base64.b64decode(_str(text), validate=True)), dtype=np.uint8)


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a string is needed, not {value!r:.60}")
    return value


def checked_shape(value: object) -> tuple[int, ...]:
    """Return a shape from a file: whole numbers, none negative, none absurd."""
    if not isinstance(value, list) or len(value) > 64 or any(type(size) is not int for size in value):
        raise StorageError(f"a shape is a list of whole numbers, not {value!r:.60}")
    if any(not 0 <= size < 2**48 for size in value):
        raise StorageError(f"the file claims an absurd shape {value!r:.60}")
    return tuple(value)


def array_from(data: np.ndarray[Any, np.dtype[np.uint8]], dtype: object, shape: object) -> Array:
    """Return bytes from a file as an array, when dtype, shape and length agree and every byte is valid.

    Raises:
        StorageError: They do not.
    """
    sizes = checked_shape(shape)
    if not isinstance(dtype, str) or not _ARRAY_DTYPE.fullmatch(dtype):
        raise StorageError(
            f"the file claims an array dtype {dtype!r:.60}, which is none that may stand in a file"
        )
    kind = np.dtype(dtype)
    if math.prod(sizes) * kind.itemsize != len(data):
        raise StorageError(f"the file has {len(data)} bytes for an array of {dtype} and shape {sizes}")
    if kind.kind == "b" and len(data) and data.max() > 1:
        raise StorageError("the file holds bools that are neither true nor false")
    if kind.kind == "U" and len(data) and data.view(kind.newbyteorder("=") if kind.isnative else kind).size:
        points = data.view(np.dtype("u4").newbyteorder(kind.byteorder))
        if points.max() > 0x10FFFF:
            raise StorageError("the file holds text with characters that do not exist")
    if not kind.itemsize:
        return np.zeros(sizes, dtype=kind) if math.prod(sizes) < 2**24 else _absurd(sizes)
    return data.view(kind).reshape(sizes)


def _absurd(sizes: tuple[int, ...]) -> Array:
    raise StorageError(f"the file claims an absurd shape {sizes} of nothing")


def tensor_from(data: np.ndarray[Any, np.dtype[np.uint8]], dtype: object, shape: object) -> Tensor:
    """Return bytes from a file as a tensor; otherwise as ``array_from``."""
    sizes = checked_shape(shape)
    if not isinstance(dtype, str) or dtype not in DTYPES or not _is_plain(dtype):
        raise StorageError(f"the file claims a tensor dtype {dtype!r:.60}, which torch does not have")
    if math.prod(sizes) * DTYPES[dtype].itemsize != len(data):
        raise StorageError(f"the file has {len(data)} bytes for a tensor of {dtype} and shape {sizes}")
    if dtype == "bool" and len(data) and data.max() > 1:
        raise StorageError("the file holds bools that are neither true nor false")
    return as_tensor(data, DTYPES[dtype], sizes)


def _is_plain(dtype: str) -> bool:
    return not re.match(r"q|bits|u?int[1-7]$|float4", dtype)


def _objects(opened: Callable[[Json], Any], value: Json) -> Array:
    shape, entries = checked_shape(value["s"]), value["v"]
    if not isinstance(entries, list) or len(entries) != math.prod(shape):
        raise StorageError(f"the file has the wrong number of objects for shape {shape}")
    flat = np.empty(len(entries), dtype=object)
    for place, entry in enumerate(entries):
        flat[place] = opened(entry)
    return flat.reshape(shape)


def contributions_from(parts: Json, opened: Callable[[Json], Any]) -> tuple[Contribution, ...]:
    """Return contributions of a metric from their JSON form."""
    return tuple(Contribution(_str(name), opened(value), float(weight)) for name, value, weight in parts)


def _metrics_from(opened: Callable[[Json], Any], value: Json) -> Metrics:
    values, stamps = opened(value["v"][0]), value["v"][1]
    if not isinstance(values, dict) or not isinstance(stamps, dict):
        raise StorageError("the file holds metrics that are no dictionary")
    known = {}
    for name, (reducer, parts) in stamps.items():
        seen = values[name]
        known[name] = Stamp(
            list(seen) if isinstance(seen, list) else seen, _str(reducer), contributions_from(parts, opened)
        )
    return Metrics(values, known)


def _tensor_value(opened: Callable[[Json], Any], value: Json) -> Any:  # a tensor, or what a pickle holds
    if isinstance(value["v"], dict):
        return opened(value["v"])
    dtype, shape, requires_grad, text = value["v"]
    tensor = tensor_from(_bytes(text), dtype, shape)
    return tensor.requires_grad_() if requires_grad is True else tensor


_DECODE: Final[dict[str, Callable[[Callable[[Json], Any], Json], Any]]] = {  # each returns what its kind says
    "float": lambda opened, value: float(_str(value["v"])),
    "dict": lambda opened, value: {opened(key): opened(entry) for key, entry in value["v"]},
    "tuple": lambda opened, value: tuple(map(opened, value["v"])),
    "set": lambda opened, value: set(map(opened, value["v"])),
    "frozenset": lambda opened, value: frozenset(map(opened, value["v"])),
    "bytes": lambda opened, value: base64.b64decode(_str(value["v"]), validate=True),
    "complex": lambda opened, value: complex(*map(opened, value["v"])),
    "scalar": lambda opened, value: array_from(_bytes(value["v"]), value["t"], [])[()],
    "array": lambda opened, value: array_from(_bytes(value["v"]), value["t"], value["s"]),
    "objects": _objects,
    "tensor": _tensor_value,
    "metric": lambda opened, value: Metric(_str(value["v"][0]), contributions_from(value["v"][1], opened)),
    "metrics": _metrics_from,
}


def dump(value: Json) -> bytes:
    """Return JSON as bytes."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def parse(data: bytes, what: str) -> Json:
    """Return the JSON in some bytes.

    Raises:
        StorageError: It is none, or nests too deeply.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{what} is damaged: {error}") from error
