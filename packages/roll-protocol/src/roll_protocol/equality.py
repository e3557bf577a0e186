"""Value equality of everything a batch can hold; NaN equals NaN."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from roll_protocol.ragged import values_and_offsets


def same(left: object, right: object) -> bool:
    """Tell whether two values are equal, looking into containers, arrays and tensors.

    Args:
        left, right: Any values. Tensors and arrays must agree in dtype, shape and values; ``True`` is not
            ``1``.

    Returns:
        True when they are equal. NaN equals NaN; two objects whose ``==`` fails or is ambiguous are unequal.
    """
    if left is right:
        return True
    if isinstance(left, Tensor) or isinstance(right, Tensor):
        return isinstance(left, Tensor) and isinstance(right, Tensor) and same_tensor(left, right)
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return isinstance(left, np.ndarray) and isinstance(right, np.ndarray) and same_array(left, right)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return (
            isinstance(left, list) == isinstance(right, list)
            and len(left) == len(right)
            and all(map(same, left, right))
        )
    if isinstance(left, (bool, np.bool_)) != isinstance(right, (bool, np.bool_)):
        return False
    return _same_scalar(left, right)


def _same_scalar(left: object, right: object) -> bool:
    try:
        if left == right:
            return True
        return bool(left != left and right != right)  # NaN is the one value that differs from itself
    except (TypeError, ValueError, RuntimeError):
        return False


def same_tensor(left: Tensor, right: Tensor) -> bool:
    """Tell whether two tensors agree in layout, dtype, shape and values, wherever they live."""
    if left.dtype != right.dtype or left.layout != right.layout:
        return False
    if left.is_nested:
        return all(map(same_tensor, values_and_offsets(left), values_and_offsets(right)))
    if left.shape != right.shape:
        return False
    left, right = left.detach(), right.detach()
    if left.device != right.device:
        left, right = left.cpu(), right.cpu()
    if left.dtype.itemsize == 1 and left.dtype.is_floating_point:  # float8 has few operators
        left, right = left.float(), right.float()
    if torch.equal(left, right):
        return True
    if not (left.dtype.is_floating_point or left.dtype.is_complex):
        return False
    return bool(((left == right) | (left.isnan() & right.isnan())).all())


def same_array(left: np.ndarray, right: np.ndarray) -> bool:
    """Tell whether two arrays agree in dtype (the width of strings apart), shape and values."""
    if left.shape != right.shape or left.dtype.kind != right.dtype.kind:
        return False
    if left.dtype == object:
        return all(map(same, left.ravel(), right.ravel()))
    if left.dtype.kind in "US":
        return bool(np.array_equal(left, right))
    if left.dtype != right.dtype:
        return False
    if left.dtype.kind in "fcmM":
        return bool(np.array_equal(left, right, equal_nan=True))
    return bool(np.array_equal(left, right))
