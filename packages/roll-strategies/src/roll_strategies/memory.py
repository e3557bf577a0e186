"""Bytes of tensors as NumPy arrays, and giving freed memory back to the machine."""

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Bytes = npt.NDArray[np.uint8]


def shared_bytes(owner: torch.UntypedStorage | Tensor, *, num_bytes: int) -> Bytes:
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


def bytes_of(tensor: Tensor) -> Bytes:
    """Returns the bytes of a tensor; shared with a contiguous CPU tensor, a copy of any other."""
    flat = tensor.detach().contiguous().cpu()
    return shared_bytes(flat, num_bytes=flat.numel() * flat.element_size())


def give_back() -> None:
    """Returns freed memory to the machine: glibc would keep that of tensors below 32 MiB for later ones."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
