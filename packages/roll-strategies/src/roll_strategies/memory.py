"""Bytes of tensors as NumPy arrays, and giving freed memory back to the machine."""

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[np.uint8]
Bytes = Array | Tensor
"""A run of bytes: a uint8 array, or a uint8 tensor on any device; one dimension."""


def shared_bytes(owner: torch.UntypedStorage | Tensor, *, num_bytes: int) -> Array:
    """Returns the memory of a CPU tensor or storage, shared and writable.

    `Tensor.numpy()` would do the same and leave a storage that can never be resized again, so that its memory
    could not be given back.

    Args:
        owner: kept alive by the result.
        num_bytes: how much, from its first byte.
    """
    if num_bytes == 0:
        return np.empty(0, dtype=np.uint8)
    window: Any = (ctypes.c_uint8 * num_bytes).from_address(owner.data_ptr())  # Any: a type made on the spot
    window.owner = owner
    return np.frombuffer(window, dtype=np.uint8)


def tensor_over(array: Array) -> Tensor:
    """Returns the memory of an array as a tensor, shared; it must not be written to where the array must
    not.

    `torch.from_numpy` does the same, with a warning for memory that is read-only, as in an object store.
    """
    if not len(array):
        return torch.empty(0, dtype=torch.uint8)
    window: Any = (ctypes.c_uint8 * len(array)).from_address(
        array.ctypes.data
    )  # Any: a type made on the spot
    window.owner = array
    return torch.frombuffer(window, dtype=torch.uint8)


def bytes_of(tensor: Tensor) -> Array:
    """Returns the bytes of a tensor; shared with a contiguous CPU tensor, a copy of any other."""
    flat = tensor.detach().contiguous().cpu()
    return shared_bytes(flat, num_bytes=flat.numel() * flat.element_size())


def give_back() -> None:
    """Returns freed memory to the machine: glibc would keep that of tensors below 32 MiB for later ones."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
