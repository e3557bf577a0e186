"""Cutting the arguments of a call: all of them at the same rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roll_dispatch.arguments import Broadcast, Direct, Split, is_bare, named, whole
from roll_dispatch.errors import SplitError
from roll_dispatch.kinds import Bounds, Kind, Rows, kind_of
from roll_dispatch.record import Record

Args = tuple[Any, ...]  # Any: arguments of the user's own method
Kwargs = dict[str, Any]  # Any: arguments of the user's own method
Part = tuple[Args, Kwargs]
Column = Sequence[object]
"""What one argument is on each part."""
Spread = Callable[[list[list[Rows]], int], Column]
"""From the pieces of every leaf and the number of parts to the argument's column."""


class Leaf(Record):
    """One piece of the arguments that has rows."""

    mode: str
    """Name of the mode, for messages."""
    path: str
    """What messages call it: "'batch'", "0" or "'batch'['ids']"."""
    value: Rows
    kind: Kind
    length: int

    def cut(self, bounds: Bounds) -> list[Rows]:
        """Return the rows within each pair of bounds."""
        return self._counted(
            lambda: self.kind.cut(self.value, bounds), [stop - start for start, stop in bounds]
        )

    def take(self, indices: Sequence[int]) -> Rows:
        """Return the rows at these places, in this order."""
        return self._counted(lambda: [self.kind.take(self.value, indices)], [len(indices)])[0]

    def cut_padded(self, bounds: Bounds) -> list[Rows]:
        """Return the rows within each pair of bounds; rows beyond the last repeat those from the first on."""
        rows = self.length
        parts = self.cut([(min(start, rows), min(stop, rows)) for start, stop in bounds])
        for part, (start, stop) in enumerate(bounds):
            beyond = [place % rows for place in range(max(start, rows), stop)]
            if beyond:
                parts[part] = self.kind.concat([parts[part], self.take(beyond)])
        return parts

    def _counted(self, parts_of: Callable[[], list[Rows]], wanted: list[int]) -> list[Rows]:
        """Return the parts when each has the rows that are due: a rule that is not ours made them."""
        try:
            parts = parts_of()
        except Exception as error:
            error.add_note(
                f"{self.mode}: raised while argument {self.path} ({type(self.value).__name__}) was cut"
            )
            raise
        sizes = wanted if self.kind.trusted else [self.kind.length(part) for part in parts]
        if sizes != wanted:
            raise SplitError(
                f"{self.mode}: argument {self.path}: the rule of its type {type(self.value).__name__} gives "
                f"parts of {sizes} rows where {wanted} are due; correct its chunk, slices or indices, or "
                "use register_splittable"
            )
        return parts


class ArgumentPlan:
    """The arguments of one call, with every piece that has rows found and measured.

    Args:
        mode: name of the mode, for messages.
        over: what the rows are divided over, for messages: "dp size 2".
        args, kwargs: the arguments of the call.
        names: names of the positional parameters, where they are known.
        direct: whether `Direct(...)` has a meaning in this mode.

    Raises:
        SplitError: when an argument has no rule, or two arguments differ in their number of rows.
    """

    def __init__(
        self,
        mode: str,
        over: str,
        args: Args,
        kwargs: Mapping[str, Any],  # Any: arguments of the user's own method
        *,
        names: Sequence[str] = (),
        direct: bool,
    ) -> None:
        self.mode, self.over, self._direct = mode, over, direct
        self.leaves: list[Leaf] = []
        self.routes: dict[str, tuple[int, ...]] = {}
        """The ranks that `Direct` arguments name, by path."""
        self._args = [self._spread(value, path) for path, value in named(args, names)]
        self._kwargs = {name: self._spread(value, repr(name)) for name, value in kwargs.items()}
        self.rows = self._common_length()
        """Number of rows of every argument that has rows; None when none has."""

    def cut(self, bounds: Bounds) -> list[Part]:
        """Return the arguments of each part, every piece cut at the same bounds."""
        return self._assemble([leaf.cut(bounds) for leaf in self.leaves], len(bounds))

    def take(self, groups: Sequence[Sequence[int]]) -> list[Part]:
        """Return the arguments of each part, which has the rows at these places in this order."""
        return self._assemble([[leaf.take(rows) for rows in groups] for leaf in self.leaves], len(groups))

    def cut_padded(self, bounds: Bounds) -> list[Part]:
        """Return the arguments of each part, where rows beyond the last repeat those from the first on."""
        return self._assemble([leaf.cut_padded(bounds) for leaf in self.leaves], len(bounds))

    def header(self) -> Part:
        """Return the arguments of a rank that receives no rows."""
        return self._assemble([[leaf.kind.header(leaf.value)] for leaf in self.leaves], 1)[0]

    def _assemble(self, pieces: list[list[Rows]], parts: int) -> list[Part]:
        columns = [spread(pieces, parts) for spread in self._args]
        args: list[Args] = list(zip(*columns, strict=True)) if columns else [()] * parts
        if not self._kwargs:
            nothing: Kwargs = {}
            return [(own, nothing) for own in args]
        keywords = {name: spread(pieces, parts) for name, spread in self._kwargs.items()}
        return [(own, {name: keywords[name][part] for name in keywords}) for part, own in enumerate(args)]

    def _spread(self, value: object, path: str) -> Spread:
        if isinstance(value, Broadcast):
            return _same(value.value)
        forced = isinstance(value, (Split, Direct))
        inner = value.value if isinstance(value, (Split, Direct)) else value
        if isinstance(value, Direct):
            self._route(value, path)
        try:
            kind = kind_of(inner, forced=forced)
        except SplitError as error:
            raise SplitError(f"{self.mode}: argument {path}: {error}") from None
        if kind is not None:
            self.leaves.append(
                Leaf(mode=self.mode, path=path, value=inner, kind=kind, length=kind.length(inner))
            )
            place = len(self.leaves) - 1
            return lambda pieces, parts: pieces[place]
        before = len(self.leaves)
        spread = self._spread_dict(inner, path) if type(inner) is dict else _same(inner)
        if forced and len(self.leaves) == before:
            raise SplitError(
                f"{self.mode}: argument {path} is {type(value).__name__}(...) around a "
                f"{type(inner).__name__}, which has no rows; pass it bare to send it to every rank"
            )
        return spread

    def _spread_dict(self, items: dict[object, object], path: str) -> Spread:
        before = len(self.leaves)
        spreads = {key: self._spread(item, f"{path}[{key!r}]") for key, item in items.items()}
        if len(self.leaves) == before and is_bare(items):
            return _same(items)

        def spread(pieces: list[list[Rows]], parts: int) -> Column:
            columns = {key: one(pieces, parts) for key, one in spreads.items()}
            return [{key: columns[key][part] for key in columns} for part in range(parts)]

        return spread

    def _route(self, value: Direct[object], path: str) -> None:
        if not self._direct:
            raise SplitError(
                f"{self.mode}: argument {path} is Direct(...), but this mode decides itself where rows go; "
                "pass it bare, or register the method with Dispatch.DIRECT"
            )
        self.routes[path] = value.to

    def _common_length(self) -> int | None:
        lengths = {leaf.length for leaf in self.leaves}
        if len(lengths) > 1:
            told = ", ".join(f"argument {leaf.path} has {leaf.length}" for leaf in self.leaves)
            raise SplitError(
                f"{self.mode} cuts all arguments at the same rows over {self.over}, but they differ in "
                f"their number of rows: {told}; wrap those that every rank needs whole in Broadcast(...)"
            )
        return lengths.pop() if lengths else None


def per_rank(
    mode: str,
    world_size: int,
    args: Args,
    kwargs: Mapping[str, Any],  # Any: arguments of the user's own method
    *,
    names: Sequence[str] = (),
) -> list[Part]:
    """Return the arguments of each rank when every argument holds one value per rank.

    Raises:
        SplitError: when an argument is neither a list or tuple of world_size values nor a Broadcast.
    """

    def column(path: str, value: object) -> Column:
        if isinstance(value, Broadcast):
            return [value.value] * world_size
        if isinstance(value, (list, tuple)) and len(value) == world_size:
            return value
        size = f" of {len(value)}" if isinstance(value, (list, tuple)) else ""
        found = f"a {type(value).__name__}{size}"
        raise SplitError(
            f"{mode}: argument {path} is {found}, but every argument is a list or tuple of {world_size} "
            "values, one per rank; wrap a value that every rank receives in Broadcast(...)"
        )

    columns = [column(path, value) for path, value in named(args, names)]
    keywords = {name: column(repr(name), value) for name, value in kwargs.items()}
    return [
        (tuple(one[rank] for one in columns), {name: one[rank] for name, one in keywords.items()})
        for rank in range(world_size)
    ]


def undivided(
    mode: str,
    args: Args,
    kwargs: Mapping[str, Any],  # Any: arguments of the user's own method
    *,
    names: Sequence[str] = (),
) -> Part:
    """Return the arguments that every rank receives whole.

    Raises:
        SplitError: when one is wrapped in `Split` or `Direct`.
    """
    positional = tuple(whole(value, mode, path) for path, value in named(args, names))
    return positional, {name: whole(value, mode, repr(name)) for name, value in kwargs.items()}


def _same(value: object) -> Spread:
    return lambda pieces, parts: [value] * parts
