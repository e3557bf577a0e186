"""Cutting the arguments of a call into parts of rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roll_dispatch.arguments import Bounds, Broadcast, Kind, Rows, Split, kind_of
from roll_dispatch.errors import SplitError

Args = tuple[Any, ...]  # Any: arguments of the user's own method
Kwargs = dict[str, Any]  # Any: arguments of the user's own method
Part = tuple[Args, Kwargs]


def even_bounds(rows: int, parts: int) -> list[tuple[int, int]]:
    """Return where each part starts and stops: sizes differ by at most one, the first parts are the larger ones.

    Example:
        >>> even_bounds(5, 3)
        [(0, 2), (2, 4), (4, 5)]
    """
    size, larger = divmod(rows, parts)
    bounds, start = [], 0
    for part in range(parts):
        stop = start + size + (part < larger)
        bounds.append((start, stop))
        start = stop
    return bounds


class Leaf:
    """One piece of the arguments that is cut by rows."""

    __slots__ = ("kind", "length", "path", "value")

    def __init__(self, path: str, value: Rows, kind: Kind) -> None:
        self.path, self.value, self.kind = path, value, kind
        self.length = kind.length(value)


Build = Callable[[Sequence[Rows]], Any]  # Any: the argument as its rank receives it


class ArgumentPlan:
    """The arguments of one call, with the pieces that are cut by rows found.

    Args:
        mode: name of the mode, for messages.
        over: what the rows are divided over and its size, for messages: "dp size 2".
        args, kwargs: the arguments of the call.
        names: names of the positional parameters, where they are known.

    Raises:
        SplitError: when an argument has no rule, or two arguments differ in their number of rows.
    """

    def __init__(
        self, mode: str, over: str, args: Args, kwargs: Mapping[str, Any], names: Sequence[str] = ()
    ) -> None:
        self.mode, self.over = mode, over
        self.leaves: list[Leaf] = []
        self._args = [
            self._plan(value, name) for value, name in zip(args, _names(len(args), names), strict=True)
        ]
        self._kwargs = {name: self._plan(value, repr(name)) for name, value in kwargs.items()}
        self.rows = self._common_length()

    def cut(self, bounds: Bounds) -> list[Part]:
        """Return the arguments of each part, every piece cut at the same bounds."""
        columns = [leaf.kind.cut(leaf.value, bounds) for leaf in self.leaves]
        return [self.build([column[part] for column in columns]) for part in range(len(bounds))]

    def take(self, groups: Sequence[Sequence[int]]) -> list[Part]:
        """Return the arguments of each part, which has the rows at these places."""
        return [self.build([leaf.kind.take(leaf.value, rows) for leaf in self.leaves]) for rows in groups]

    def header(self) -> Part:
        """Return the arguments of a rank that receives no rows."""
        return self.build([leaf.kind.header(leaf.value) for leaf in self.leaves])

    def build(self, pieces: Sequence[Rows]) -> Part:
        """Return arguments in which these pieces stand in place of the leaves."""
        return tuple(make(pieces) for make in self._args), {
            k: make(pieces) for k, make in self._kwargs.items()
        }

    def _plan(self, value: object, path: str) -> Build:
        forced = isinstance(value, Split)
        if isinstance(value, Broadcast):
            whole = value.value
            return lambda pieces: whole
        inner = value.value if isinstance(value, Split) else value
        try:
            kind = kind_of(inner, forced=forced)
        except SplitError as error:
            raise SplitError(f"{self.mode}: argument {path}: {error}") from None
        if kind is not None:
            self.leaves.append(Leaf(path, inner, kind))
            place = len(self.leaves) - 1
            return lambda pieces: pieces[place]
        if isinstance(inner, dict):
            found = len(self.leaves)
            makers = {key: self._plan(item, f"{path}[{key!r}]") for key, item in inner.items()}
            wrapped = any(isinstance(item, (Broadcast, Split)) for item in inner.values())
            if len(self.leaves) > found or wrapped:
                return lambda pieces: {key: make(pieces) for key, make in makers.items()}
        if forced:
            raise SplitError(
                f"{self.mode}: argument {path} is Split({type(inner).__name__}), which has no rows to split; "
                "pass it bare to send it to every rank"
            )
        return lambda pieces: inner

    def _common_length(self) -> int | None:
        lengths = {leaf.length for leaf in self.leaves}
        if len(lengths) > 1:
            told = ", ".join(f"{leaf.path} has {leaf.length}" for leaf in self.leaves)
            raise SplitError(
                f"{self.mode} cuts all arguments at the same rows over {self.over}, but they differ in their number "
                f"of rows: {told}; wrap those that every rank needs whole in Broadcast(...)"
            )
        return lengths.pop() if lengths else None


def _names(count: int, names: Sequence[str]) -> list[str]:
    known = [repr(name) for name in names[:count]]
    return known + [str(place) for place in range(len(known), count)]


def per_rank(mode: str, world_size: int, args: Args, kwargs: Kwargs, names: Sequence[str] = ()) -> list[Part]:
    """Return the arguments of each rank when every argument holds one value per rank.

    Raises:
        SplitError: when an argument is neither a list or tuple of world_size values nor a Broadcast.
    """

    def spread(value: object, path: str) -> Sequence[object]:
        if isinstance(value, Broadcast):
            return [value.value] * world_size
        if isinstance(value, (list, tuple)) and len(value) == world_size:
            return value
        what = f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, (list, tuple)) else "")
        raise SplitError(
            f"{mode}: argument {path} is {what}, and every argument is a list or tuple of {world_size} values, "
            "one per rank; wrap a value that every rank receives in Broadcast(...)"
        )

    columns = [spread(value, name) for value, name in zip(args, _names(len(args), names), strict=True)]
    named = {name: spread(value, repr(name)) for name, value in kwargs.items()}
    return [
        (tuple(column[rank] for column in columns), {name: column[rank] for name, column in named.items()})
        for rank in range(world_size)
    ]


def unwrap(args: Args, kwargs: Kwargs) -> Part:
    """Return the arguments as every rank receives them, whole, with Broadcast and Split taken off."""

    def bare(value: object) -> object:
        return value.value if isinstance(value, (Broadcast, Split)) else value

    return tuple(map(bare, args)), {name: bare(value) for name, value in kwargs.items()}
