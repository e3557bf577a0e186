"""Columns: what may be one, and the two dictionaries that hold them."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from roll_protocol.errors import ColumnError

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]  # any shape, any dtype


def check_name(name: object) -> str:
    """Return ``name`` when it can name a column."""
    if not isinstance(name, str) or not name:
        raise ColumnError(f"a column is named by a non-empty string, not {name!r}")
    return name


def check_tensor(name: str, value: object, *, dims: int = 1) -> Tensor:
    """Return ``value`` when it can be a tensor column: rows first, strided or jagged.

    Raises:
        ColumnError: It is no tensor, has no first dimension, or has a layout that cannot be cut into rows.
    """
    if not isinstance(value, Tensor):
        raise ColumnError(
            f"column {name!r} is {_kind(value)} where a tensor is needed; "
            "objects go to non_tensor_batch, nested TensorDicts are flattened first: td.flatten_keys('.')"
        )
    if value.dim() < dims:
        raise ColumnError(
            f"column {name!r} has shape {tuple(value.shape)}, which lacks the first {dims} dimension(s) "
            "that are the rows; add them, or put a single value into meta_info"
        )
    if value.layout is torch.jagged and dims == 1:
        if value._ragged_idx != 1 or value.lengths() is not None:  # type: ignore[attr-defined]  # has no public name
            raise ColumnError(
                f"column {name!r} is a jagged tensor that is ragged in another dimension than 1 or "
                "has holes; "
                "rebuild it with torch.nested.nested_tensor_from_jagged(values, offsets)"
            )
    elif value.is_nested:
        raise ColumnError(
            f"column {name!r} is a nested tensor that is not jagged, or jagged with {dims} batch dimensions; "
            "rebuild it with torch.nested.nested_tensor_from_jagged(values, offsets)"
        )
    elif value.layout is not torch.strided:
        raise ColumnError(f"column {name!r} has layout {value.layout}; call .to_dense() on it first")
    return value


def check_array(name: str, value: object) -> Array:
    """Return ``value`` when it can be an array column: a NumPy array with rows first."""
    if not isinstance(value, np.ndarray):
        raise ColumnError(
            f"column {name!r} is {_kind(value)} where a NumPy array is needed; use torch.tensor(...) "
            "for numbers and roll_protocol.object_array(...) for one object per row"
        )
    if value.ndim == 0:
        raise ColumnError(
            f"column {name!r} is a 0-d array, which has no rows; put a single value into meta_info"
        )
    return value


def object_array(values: Sequence[object] | Array) -> Array:
    """Return an object array with one entry per row, whatever the entries are.

    Args:
        values: Any sequence. ``np.array([[1, 2], [3, 4]], dtype=object)`` would have shape (2, 2); this has
            shape (2,).

    Example:
        >>> object_array([[1, 2], [3, 4]]).shape
        (2,)
    """
    array = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        array[row] = value
    return array


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"
