"""The two wrappers that say what a caller means by an argument, where its type does not."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from roll_dispatch.errors import SplitError

T = TypeVar("T")


class Broadcast(Generic[T]):
    """An argument that every rank receives whole, whatever its type.

    Example:
        >>> split(Dispatch.DP_MP_COMPUTE, Topology.data_parallel(2), [1, 2], Broadcast(["a", "b", "c"]))
        [(([1], ['a', 'b', 'c']), {}), (([2], ['a', 'b', 'c']), {})]
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Broadcast({self.value!r})"


class Split(Generic[T]):
    """An argument that is cut into rows although its type is one that every rank receives whole.

    Example:
        >>> split(Dispatch.DP_MP_COMPUTE, Topology.data_parallel(2), Split("abc"))
        [(('ab',), {}), (('c',), {})]
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Split({self.value!r})"


class Direct(Generic[T]):
    """Rows with the rank that each one goes to, for `Dispatch.DIRECT`.

    Args:
        value: anything that can be cut into rows.
        to: one global rank per row (for `Dispatch.direct("dp")`: one DP rank per row).

    Example:
        >>> split(Dispatch.DIRECT, Topology.data_parallel(2), Direct(["a", "b", "c"], to=[1, 0, 1]))
        [((['b'],), {}), ((['a', 'c'],), {})]
    """

    __slots__ = ("to", "value")

    def __init__(self, value: T, *, to: Sequence[int]) -> None:
        self.value = value
        self.to = tuple(int(rank) for rank in to)

    def __repr__(self) -> str:
        return f"Direct({self.value!r}, to={list(self.to)})"


def is_bare(value: object) -> bool:
    """Return whether neither the value nor, for a dict, anything in it is wrapped."""
    if type(value) is dict:
        return all(map(is_bare, value.values()))
    return not isinstance(value, (Broadcast, Split, Direct))


def whole(value: object, mode: str, path: str) -> object:
    """Return an argument as a mode that cuts no rows sends it: Broadcast taken off, also inside dicts.

    Raises:
        SplitError: when it is wrapped in `Split` or `Direct`, which ask for what the mode does not do.
    """
    if is_bare(value):
        return value
    if isinstance(value, Broadcast):
        return value.value
    if isinstance(value, dict):
        return {key: whole(item, mode, f"{path}[{key!r}]") for key, item in value.items()}
    raise SplitError(
        f"{mode} cuts no argument into rows, but argument {path} is {type(value).__name__}(...); pass it bare"
    )


def named(args: Sequence[object], names: Sequence[str]) -> list[tuple[str, object]]:
    """Return each positional argument with what messages call it: the parameter's name, or its place."""
    return [
        (repr(names[place]) if place < len(names) else str(place), value) for place, value in enumerate(args)
    ]
