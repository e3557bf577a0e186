"""How many rows of logits are worked on at a time."""

from collections.abc import Iterator

import torch
from torch import Tensor

CHUNK_BYTES = 4 * 1024 * 1024
"""Upper bound of one float32 working copy."""


def row_chunks(rows: int, width: int) -> Iterator[slice]:
    """Yields slices that cover `rows`, each small enough for a float32 copy of `CHUNK_BYTES`."""
    step = max(1, CHUNK_BYTES // (4 * max(1, width)))
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))


def working_dtype(logits: Tensor) -> torch.dtype:
    """Returns float32 for half precision, and the dtype itself for float32 and float64."""
    return torch.float32 if logits.dtype in (torch.float16, torch.bfloat16) else logits.dtype


def check_temperature(temperature: float) -> float:
    """Returns 1 / temperature.

    Raises:
        ValueError: the temperature is not above 0.
    """
    if not temperature > 0:
        raise ValueError(
            f"temperature must be above 0, got {temperature}; greedy decoding is scored with temperature 1"
        )
    return 1.0 / temperature
