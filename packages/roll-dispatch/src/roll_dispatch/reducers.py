"""Declared ways to merge the outputs of the answering ranks into one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from roll_dispatch.errors import CollectError

Reducer = (
    Literal["sum", "mean", "min", "max", "first"] | Callable[[list[Any]], Any]
)  # Any: the user's outputs
"""A name, for numbers and dicts of them; or a function of the list of outputs in join order."""

NAMES = ("sum", "mean", "min", "max", "first")


def reduce(mode: str, reducer: Reducer, outputs: Mapping[int, object], rows: Sequence[int] | None) -> object:
    """Return the outputs merged.

    Args:
        mode: name of the mode, for messages.
        reducer: a name or a function. "mean" weighs each rank by its number of rows, where rows were split.
        outputs: by rank, in join order.
        rows: number of rows of each rank, None when nothing was split.

    Raises:
        CollectError: when a named reducer meets what is neither a number nor a dict of numbers with the same
            keys.
    """
    values = list(outputs.values())
    if not isinstance(reducer, str):
        return reducer(values)
    if reducer == "first":
        return values[0]
    weights = [1 if rows is None else rows[rank] for rank in outputs]
    return _merge(mode, reducer, list(outputs), values, weights if sum(weights) else [1] * len(weights))


def _merge(
    mode: str, name: str, ranks: list[int], values: list[Any], weights: list[int]
) -> object:  # Any: user's
    first = values[0]
    if all(isinstance(value, Mapping) for value in values):
        for rank, value in zip(ranks, values, strict=True):
            if value.keys() != first.keys():
                raise CollectError(
                    f"{mode}: reducer {name!r} merges dicts key by key, but rank {rank} has "
                    f"{sorted(value, key=str)} and rank {ranks[0]} has {sorted(first, key=str)}; return the "
                    "same keys, or give a function"
                )
        return {key: _merge(mode, name, ranks, [value[key] for value in values], weights) for key in first}
    for rank, value in zip(ranks, values, strict=True):
        if isinstance(value, (str, bytes, list, tuple, Mapping)) or value is None:
            raise CollectError(
                f"{mode}: reducer {name!r} merges numbers, but rank {rank} returned a "
                f"{type(value).__name__}; return numbers or dicts of them, or give a function of the list "
                "of outputs"
            )
    if name == "mean":
        return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)
    if name == "sum":
        return sum(values)
    return min(values) if name == "min" else max(values)
