"""How many rows of logits are worked on at a time."""

from collections.abc import Iterator

import torch
from torch import Tensor

from roll_strategies.ops.vocabulary import VocabularyShard

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


def used_columns(logits: Tensor, shard: VocabularyShard | None) -> Tensor:
    """Returns the logits of real ids [N, w] of all positions: a split vocabulary may end with filler."""
    if shard is not None:
        shard.check(logits.shape[-1])
    flat_NV = logits.reshape(-1, logits.shape[-1])
    return flat_NV if shard is None else flat_NV[:, : shard.used]


def new_gradient(logits: Tensor, *, used: int) -> tuple[Tensor, Tensor]:
    """Returns an unwritten gradient of the logits, and its rows [N, V] with the columns past `used` zeroed.

    The gradient is no view of anything: autograd adds the gradients of two operations in place, without a
    third, only when nobody else can see the first.
    """
    grad = torch.empty_like(logits, memory_format=torch.contiguous_format)
    rows_NV = grad.view(-1, logits.shape[-1])
    rows_NV[:, used:] = 0
    return grad, rows_NV


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
