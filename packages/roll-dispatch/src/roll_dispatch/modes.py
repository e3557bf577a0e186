"""The modes of dispatch: each is a value with two pure functions and a sentence."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

from roll_dispatch.balance import Method
from roll_dispatch.collect import Outputs, join
from roll_dispatch.context import CollectFunction, Context, Parts, SplitFunction
from roll_dispatch.errors import RegisterError
from roll_dispatch.layout import check_axes
from roll_dispatch.record import Record
from roll_dispatch.rows import Answering, BalancedSplit, Cost, DirectSplit, Empty, RowSplit
from roll_dispatch.split import Args, Kwargs, per_rank, undivided
from roll_dispatch.topology import Topology


def _undivided(context: Context, args: Args, kwargs: Kwargs) -> Parts:
    part = undivided(context.mode, args, kwargs, names=context.names)
    return Parts([part] * context.topology.world_size)


def _per_rank(context: Context, args: Args, kwargs: Kwargs) -> Parts:
    return Parts(per_rank(context.mode, context.topology.world_size, args, kwargs, names=context.names))


def listed(context: Context, outputs: Outputs) -> object:
    """Return the outputs of the answering ranks, as they are."""
    return list(outputs.values())


def only(context: Context, outputs: Outputs) -> object:
    """Return the output of the one answering rank."""
    (output,) = outputs.values()
    return output


def joined(context: Context, outputs: Outputs) -> object:
    """Return the outputs of the answering ranks as one value."""
    return join(context.mode, outputs)


def every_rank(topology: Topology) -> Sequence[int]:
    """Return all ranks in order."""
    return range(topology.world_size)


def rank_zero(topology: Topology) -> Sequence[int]:
    """Return rank 0 alone."""
    return (0,)


class Dispatch(Record):
    """How the arguments of a call are split over the ranks and how their outputs are joined.

    The modes of this package are attributes, such as `Dispatch.DP_MP_COMPUTE`. `Dispatch.over("dp", "cp")`,
    `Dispatch.direct("dp")` and `Dispatch.balanced("lengths")` make others; `register_dispatch` makes yours.
    """

    name: str
    """What errors and `explain` call it."""
    summary: str
    """One sentence."""
    split: SplitFunction
    """From context and arguments to what each rank receives."""
    collect: CollectFunction
    """From context and the outputs of the answering ranks to the result."""
    collecting: Callable[[Topology], Sequence[int]]
    """The answering ranks, in the order in which their outputs are joined."""
    needs_call: bool = False
    """Whether only the planned call can join the outputs, because the arguments decide their order."""

    ONE_TO_ALL: ClassVar[Self]
    """Every rank receives the same arguments; the result lists the output of every rank."""
    ONE_TO_ALL_ONE: ClassVar[Self]
    """Every rank receives the same arguments; the result is the output of rank 0."""
    ALL_TO_ALL: ClassVar[Self]
    """Rank i receives item i of each argument; the result lists the output of every rank."""
    DP_MP_COMPUTE: ClassVar[Self]
    """Rows are split over DP ranks and shared by their TP, PP and CP peers; one rank of each answers."""
    DP_MP_DISPATCH_FIRST: ClassVar[Self]
    """Rows go to the first rank of each DP rank, its peers receive none; one rank of each answers."""
    DP_MP_DISPATCH_FIRST_COLLECT_ALL: ClassVar[Self]
    """Rows go to the first rank of each DP rank; the result lists the output of every rank."""
    DIRECT: ClassVar[Self]
    """The caller gives a rank per row; the rows of the result are in the caller's order."""

    @classmethod
    def over(cls, *axes: str) -> Self:
        """Return the mode that splits rows over any axes; `over("dp", "cp")` gives sequence shards.

        Args:
            axes: names of axes, the slowest first. Ranks that differ only on other axes share a part.

        Raises:
            TopologyError: for no axis, an unknown or a repeated one, or ep together with dp or cp.
        """
        check_axes(axes)
        named = " x ".join(axes)
        return cls(
            name=f"over({', '.join(axes)})",
            summary=f"Rows are split over {named}, shared by ranks that differ elsewhere; one each answers.",
            split=RowSplit(axes=axes),
            collect=joined,
            collecting=Answering(axes=axes),
        )

    @classmethod
    def direct(cls, *axes: str) -> Self:
        """Return the mode in which the caller gives, with each row, where it goes.

        Args:
            axes: `direct("dp")` takes DP ranks and sends a row to all peers of one; no axes: global ranks.

        Raises:
            TopologyError: for an unknown or a repeated axis, or ep together with dp or cp.
        """
        if axes:
            check_axes(axes)
        target = f"a place over {' x '.join(axes)}" if axes else "a rank"
        return cls(
            name=f"direct({', '.join(axes)})" if axes else "DIRECT",
            summary=f"The caller gives {target} per row; the rows of the result are in the caller's order.",
            split=DirectSplit(axes=axes),
            collect=joined,
            collecting=Answering(axes=axes),
            needs_call=True,
        )

    @classmethod
    def balanced(cls, cost: Cost, *, equal_counts: bool = True, method: Method = "auto") -> Self:
        """Return DP_MP_COMPUTE with rows divided by cost; the rows of the result are in the caller's order.

        Args:
            cost: name of the argument that holds a cost per row, or a function of the call's arguments that
                returns them.
            equal_counts: whether DP ranks receive equally many rows (within one), or as the costs want.
            method: as in `balance`.
        """
        named = cost if isinstance(cost, str) else getattr(cost, "__name__", repr(cost))
        return cls(
            name=f"balanced({named})",
            summary="Rows are divided over DP ranks by cost; their peers share them; the order is kept.",
            split=BalancedSplit(cost=cost, equal_counts=equal_counts, method=method),
            collect=joined,
            collecting=Answering(),
            needs_call=True,
        )

    @staticmethod
    def named(name: "str | Dispatch") -> "Dispatch":
        """Return the mode of this name, ours or a registered one; a mode returns itself.

        Raises:
            RegisterError: for an unknown name, with the known ones.
        """
        if isinstance(name, Dispatch):
            return name
        if name not in _modes:
            raise RegisterError(f"no mode is named {name!r}; known are {', '.join(_modes)}")
        return _modes[name]

    @staticmethod
    def names() -> tuple[str, ...]:
        """Return the names of all modes: ours, then the registered ones."""
        return tuple(_modes)

    def with_options(self, *, pad: bool | None = None, empty: Empty | None = None) -> Self:
        """Return this mode with another policy for rows that do not fill the parts evenly.

        Args:
            pad: repeat rows, from the first one on, until every part has equally many; what ranks return for
                the repeated ones is taken off the result.
            empty: "send" parts without rows, so that every rank is called, as collectives need; or "skip":
                their ranks are not called. With no rows at all, the first part is sent.

        Raises:
            RegisterError: when the mode has no such policy.
        """
        given: dict[str, Any] = {"pad": pad, "empty": empty}  # Any: bool and str, as the fields say
        changes = {option: value for option, value in given.items() if value is not None}
        fields = self.split.fields if isinstance(self.split, Record) else ()
        for option in changes:
            if option not in fields or (option == "pad" and self.collect is not joined):
                raise RegisterError(
                    f"{self.name} has no {option}=, only modes that cut rows evenly and join them have"
                )
        if not changes or not isinstance(self.split, Record):
            return self
        if empty not in (None, "send", "skip"):
            raise RegisterError(f"empty= is 'send' or 'skip', not {empty!r}")
        split = self.split.replace(**changes)
        return self.replace(split=split, needs_call=not isinstance(split, RowSplit) or split.pad)

    def __repr__(self) -> str:
        return f"<Dispatch {self.name}>"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, tuple(self.__dict__.values())


_modes: dict[str, Dispatch] = {}


def _rebuild(*values: Any) -> Dispatch:  # Any: the fields of a mode
    mode = Dispatch(**dict(zip(Dispatch.fields, values, strict=True)))
    known = _modes.get(mode.name)
    return known if known is not None and known == mode else mode


def _builtin(
    name: str,
    split: SplitFunction,
    collect: CollectFunction,
    collecting: Callable[[Topology], Sequence[int]],
    summary: str,
) -> Dispatch:
    mode = Dispatch(name=name, summary=summary, split=split, collect=collect, collecting=collecting)
    return _modes.setdefault(name, mode)


Dispatch.ONE_TO_ALL = _builtin(
    "ONE_TO_ALL",
    _undivided,
    listed,
    every_rank,
    "Every rank receives the same arguments; the result lists the output of every rank.",
)
Dispatch.ONE_TO_ALL_ONE = _builtin(
    "ONE_TO_ALL_ONE",
    _undivided,
    only,
    rank_zero,
    "Every rank receives the same arguments; the result is the output of rank 0.",
)
Dispatch.ALL_TO_ALL = _builtin(
    "ALL_TO_ALL",
    _per_rank,
    listed,
    every_rank,
    "Rank i receives item i of each argument; the result lists the output of every rank.",
)
Dispatch.DP_MP_COMPUTE = _builtin(
    "DP_MP_COMPUTE",
    RowSplit(),
    joined,
    Answering(),
    "Rows are split over DP ranks and shared by their TP, PP and CP peers; one rank of each answers.",
)
Dispatch.DP_MP_DISPATCH_FIRST = _builtin(
    "DP_MP_DISPATCH_FIRST",
    RowSplit(first_only=True),
    joined,
    Answering(),
    "Rows go to the first rank of each DP rank, its peers receive none; one rank of each answers.",
)
Dispatch.DP_MP_DISPATCH_FIRST_COLLECT_ALL = _builtin(
    "DP_MP_DISPATCH_FIRST_COLLECT_ALL",
    RowSplit(first_only=True),
    listed,
    every_rank,
    "Rows go to the first rank of each DP rank; the result lists the output of every rank.",
)
Dispatch.DIRECT = _modes.setdefault("DIRECT", Dispatch.direct())


class _UserSplit(Record):
    function: Callable[
        [Topology, Args, Kwargs], Sequence[Any]
    ]  # Any: checked as parts when a call is planned

    def __call__(self, context: Context, args: Args, kwargs: Kwargs) -> Sequence[Any]:  # Any: see the field
        return self.function(context.topology, args, kwargs)


class _UserCollect(Record):
    function: Callable[[Topology, Outputs], object]

    def __call__(self, context: Context, outputs: Outputs) -> object:
        return self.function(context.topology, outputs)


def register_dispatch(
    name: str,
    *,
    split: Callable[[Topology, Args, Kwargs], Sequence[Any]],  # Any: checked as parts when a call is planned
    collect: Callable[[Topology, Outputs], object],
    collecting: Callable[[Topology], Sequence[int]] = every_rank,
    summary: str = "",
) -> Dispatch:
    """Make a mode of your own known by its name, and return it.

    Args:
        name: an identifier that no mode has yet. The same functions may be registered again.
        split: `split(topology, args, kwargs)` returns `(args, kwargs)` for each rank, or None for a rank that
            is not called. Pure: it only looks at its arguments.
        collect: `collect(topology, outputs)` returns the result; `outputs` maps the answering ranks that were
            called to their outputs, in the order of `collecting`. Pure.
        collecting: the ranks whose outputs are fetched, in join order; by default all.
        summary: one sentence; by default the first line of split's docstring.

    Raises:
        RegisterError: when the name is taken or is no identifier.
    """
    if not name.isidentifier():
        raise RegisterError(f"a mode is named by an identifier such as 'ROUND_ROBIN', not {name!r}")
    mode = Dispatch(
        name=name,
        summary=summary or (split.__doc__ or f"The registered mode {name}.").strip().splitlines()[0],
        split=_UserSplit(function=split),
        collect=_UserCollect(function=collect),
        collecting=collecting,
    )
    known = _modes.get(name, mode)
    if _source(known) != _source(mode):
        raise RegisterError(f"a mode named {name} exists already ({known.summary}); choose another name")
    _modes[name] = mode
    return mode


def _source(mode: Dispatch) -> object:
    """Return where the functions of a mode are written: a module that runs again registers the same mode."""
    if not isinstance(mode.split, _UserSplit) or not isinstance(mode.collect, _UserCollect):
        return mode.name
    functions = (mode.split.function, mode.collect.function)
    return tuple((function.__module__, function.__qualname__) for function in functions)
