"""Pickling: the bytes of every column travel out of band, and a slice costs the slice.

What arrives lies in memory that belongs to somebody else (the object store, a pickle's own bytes), so every
column is marked as frozen and copied when it is first handed out. See ``lent``.
"""

import math
import pickle
from collections.abc import Iterable
from typing import Any, Final, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from roll_protocol.columns import Array
from roll_protocol.ragged import jagged, values_and_offsets

Packed: TypeAlias = tuple[Any, ...]  # a tuple of plain values and buffers, as the functions below make it
DTYPES: Final = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype)
}


def to_bytes(tensor: Tensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the values of a tensor as bytes, shape [nbytes]; a view when the tensor is contiguous and on
    the CPU."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8).numpy()


def array_bytes(array: Array) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the values of an array as bytes; a view when they lie in order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _buffer(data: np.ndarray[Any, np.dtype[np.uint8]], protocol: int) -> object:
    """Return bytes as something that pickle sends: out of band where the protocol can, and never writable on
    arrival."""
    if not data.size:
        return None
    return pickle.PickleBuffer(data.data.toreadonly()) if protocol >= 5 else data.tobytes()


class _Address:
    """Bytes as NumPy's array interface describes them, without the mark that they must not be written to."""

    def __init__(self, data: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        interface = dict(data.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface
        self.owner = data  # keeps the memory alive


def _received(buffer: object) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return (
        np.zeros(0, dtype=np.uint8)
        if buffer is None
        else np.frombuffer(cast("bytes", buffer), dtype=np.uint8)
    )


def as_tensor(data: np.ndarray[Any, np.dtype[np.uint8]], dtype: torch.dtype, shape: Iterable[int]) -> Tensor:
    """Return a tensor over bytes that must not be written to; torch has no mark for that, so the caller
    keeps one."""
    if not data.size:
        return torch.empty(tuple(max(size, 0) for size in shape), dtype=dtype)
    if data.ctypes.data % dtype.itemsize:
        data = data.copy()
    elif not data.flags.writeable:
        data = np.asarray(_Address(data))
    return torch.from_numpy(data).view(dtype).view(tuple(shape))


def pack_tensor(tensor: Tensor, protocol: int) -> Packed:
    """Return a tensor as plain values and a buffer."""
    if tensor.is_nested:
        return "jagged", *(pack_tensor(part, protocol) for part in values_and_offsets(tensor))
    dtype = str(tensor.dtype).removeprefix("torch.")
    return dtype, tuple(tensor.shape), tensor.requires_grad, _buffer(to_bytes(tensor), protocol)


def unpack_tensor(packed: Packed) -> Tensor:
    """Return the tensor over the memory of its buffer."""
    if packed[0] == "jagged":
        return jagged(*map(unpack_tensor, packed[1:]))
    dtype, shape, requires_grad, buffer = packed
    tensor = as_tensor(_received(buffer), DTYPES[dtype], shape)
    return tensor.requires_grad_() if requires_grad else tensor


def pack_array(array: Array, protocol: int) -> Packed | Array:
    """Return an array as plain values and a buffer; of an array of objects, the tensors and arrays in it."""
    if array.dtype == object:
        return _pack_objects(array, protocol)
    if array.dtype.hasobject:
        return array
    kind = array.dtype.str if array.dtype.names is None else array.dtype
    return "array", kind, array.shape, _buffer(array_bytes(array), protocol)


def unpack_array(packed: Packed | Array) -> tuple[Array, bool]:
    """Return the array, and whether it or arrays in it lie in memory that must not be written to."""
    if not isinstance(packed, tuple):
        return packed, False
    if packed[0] == "objects":
        return _unpack_objects(packed), True
    _, dtype, shape, buffer = packed
    return _received(buffer).view(np.dtype(dtype)).reshape(shape), True


def _is_packable(value: object) -> bool:
    if type(value) is Tensor:
        return value.layout is torch.strided and not value.requires_grad
    return type(value) is np.ndarray and not value.dtype.hasobject and value.dtype.names is None


def _pack_objects(array: Array, protocol: int) -> Packed | Array:
    flat = array.reshape(-1)
    if not {Tensor, np.ndarray} & set(map(type, flat)):
        return array
    groups: dict[tuple[str, str], list[int]] = {}
    rest = flat.copy()
    for place, value in enumerate(flat):
        if _is_packable(value):
            kind = "tensor" if type(value) is Tensor else "array"
            dtype = value.dtype.str if kind == "array" else str(value.dtype).removeprefix("torch.")
            groups.setdefault((kind, dtype), []).append(place)
            rest[place] = None
    packed = []
    for (kind, dtype), places in groups.items():
        to_flat = to_bytes if kind == "tensor" else array_bytes
        data = np.concatenate([to_flat(flat[place]) for place in places])
        shapes = [tuple(flat[place].shape) for place in places]
        packed.append((kind, dtype, places, shapes, _buffer(data, protocol)))
    return "objects", array.shape, rest, packed


def _unpack_objects(packed: Packed) -> Array:
    _, shape, flat, groups = packed
    for kind, dtype, places, shapes, buffer in groups:
        data, at = _received(buffer), 0
        whole = as_tensor(data, DTYPES[dtype], [-1]) if kind == "tensor" else data.view(dtype)
        for place, size in zip(places, shapes, strict=True):
            count = math.prod(size)
            flat[place] = whole[at : at + count].reshape(size)
            at += count
    return flat.reshape(shape)  # type: ignore[no-any-return]  # part of a tuple


class _Box:
    """A tensor or an array inside meta data; it arrives as a copy of its own."""

    def __init__(self, value: Tensor | Array) -> None:
        self.value = value

    def __reduce_ex__(self, protocol: Any) -> Packed:
        if isinstance(self.value, Tensor):
            return _open_tensor, (pack_tensor(self.value, protocol),)
        return _open_array, (pack_array(self.value, protocol),)


def _open_tensor(packed: Packed) -> Tensor:
    tensor = unpack_tensor(packed)
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _open_array(packed: Packed | Array) -> Array:
    return unpack_array(packed)[0].copy()


def boxed(value: object) -> object:
    """Return meta data in which tensors and arrays are packed, inside plain dictionaries, lists and tuples
    too."""
    if type(value) is Tensor and value.layout is torch.strided:
        return _Box(value)
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return _Box(value)
    if type(value) is dict:
        return {name: boxed(entry) for name, entry in value.items()}
    if type(value) is list:
        return [boxed(entry) for entry in value]
    if type(value) is tuple:
        return tuple(boxed(entry) for entry in value)
    return value
