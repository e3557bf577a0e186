"""Columns of a batch by name and kind, with an error that says what is there."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from roll_protocol import DataProto


class MissingColumnError(KeyError):
    """A step needs a column that the batch does not have."""

    def __str__(self) -> str:
        return str(self.args[0])


def tensor(rows: DataProto, name: str) -> Tensor:
    """Returns a tensor column.

    Args:
        rows: the batch.
        name: of the column.

    Raises:
        MissingColumnError: there is no tensor of that name.

    Example:
        >>> tensor(DataProto.from_single_dict({"x": torch.arange(2)}), "x")
        tensor([0, 1])
    """
    found = rows[name] if name in rows else None  # noqa: SIM401  # a batch is no mapping
    if not isinstance(found, torch.Tensor):
        raise MissingColumnError(
            f"the batch has no tensor column {name!r}; it has {', '.join(rows.keys()) or 'none'}"
        )
    return found


def objects(rows: DataProto, name: str) -> NDArray[Any]:  # Any: an object column holds what was put in
    """Returns an array column.

    Args:
        rows: the batch.
        name: of the column.

    Raises:
        MissingColumnError: there is no array of that name.
    """
    found = rows[name] if name in rows else None  # noqa: SIM401  # a batch is no mapping
    if not isinstance(found, np.ndarray):
        raise MissingColumnError(
            f"the batch has no array column {name!r}; it has {', '.join(rows.keys()) or 'none'}"
        )
    return found
