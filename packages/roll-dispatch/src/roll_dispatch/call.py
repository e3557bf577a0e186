"""One planned call: what is sent to each rank and how the outputs are joined."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roll_dispatch.collect import pick
from roll_dispatch.context import Context, Parts
from roll_dispatch.errors import ArgumentError, CollectError, SplitError
from roll_dispatch.modes import Dispatch
from roll_dispatch.reducers import reduce
from roll_dispatch.register import Execute, Route
from roll_dispatch.split import Part
from roll_dispatch.topology import Topology

_RANK_ZERO_ALONE = Topology.data_parallel(1)


class Call:
    """A call whose arguments are split. Parts that several ranks share are the same object.

    Made by `plan_call`. An executor sends `parts[rank]` to each rank that has one, waits for the collecting
    ranks, and calls `collect`.
    """

    __slots__ = ("_context", "_parts", "collecting_ranks", "parts", "route")

    def __init__(
        self,
        route: Route,
        *,
        context: Context,
        parts: Parts,
        collecting_ranks: Sequence[int],
        world_size: int,
    ) -> None:
        self._context = context
        self._parts = parts
        self.route = route
        """How the method is registered."""
        beyond = world_size - len(parts)
        self.parts: list[Part | None] = [*parts, *[None] * beyond] if beyond else parts
        """`(args, kwargs)` by global rank; None for a rank that is not called."""
        self.collecting_ranks = tuple(collecting_ranks)
        """Global ranks whose outputs make the result, in the order in which they are joined."""

    @property
    def rows(self) -> list[int] | None:
        """Number of rows that each global rank works on, padding not counted; None when nothing is split."""
        counts = self._parts.rows
        return None if counts is None else [*counts, *[0] * (len(self.parts) - len(counts))]

    @property
    def note(self) -> str:
        """What happens to the result beyond joining, a clause; empty for nothing."""
        return "" if self._parts.back is None else self._parts.back.words

    def collect(self, outputs: Mapping[int, object] | Sequence[object]) -> object:
        """Return the result of the call.

        Args:
            outputs: a mapping from rank to output that holds at least the collecting ranks, or one output per
                rank in rank order. What other ranks returned is ignored.

        Raises:
            CollectError: when an output is missing or the outputs do not fit together.
        """
        mode = self.route.dispatch_mode
        picked = pick(mode.name, self.collecting_ranks, outputs, len(self.parts))
        back = self._parts.back
        kept = picked if back is None else back.outputs(mode.name, picked)
        if self.route.reducer is not None:
            return reduce(mode.name, self.route.reducer, kept, self._parts.rows)
        result = mode.collect(self._context, kept)
        return result if back is None else back.result(mode.name, kept, result)

    def __repr__(self) -> str:
        called = sum(part is not None for part in self.parts)
        return f"<Call {self.route.dispatch_mode.name}: {called} of {len(self.parts)} ranks>"


def plan_call(
    route_or_mode: Route | Dispatch,
    topology: Topology,
    args: Sequence[Any] = (),  # Any: arguments of the user's own method
    kwargs: Mapping[str, Any] | None = None,  # Any: arguments of the user's own method
) -> Call:
    """Return a call with its arguments split: what an executor sends, and how it joins what comes back.

    Args:
        route_or_mode: how the method is registered, or a mode alone.
        topology: the ranks.
        args, kwargs: the arguments of the call, without the worker.

    Raises:
        SplitError: when the arguments cannot be split; nothing has been sent.
    """
    route = route_or_mode if isinstance(route_or_mode, Route) else Route(dispatch_mode=route_or_mode)
    mode = route.dispatch_mode
    seen = _RANK_ZERO_ALONE if route.execute_mode is Execute.RANK_ZERO else topology
    context = Context(mode=mode.name, topology=seen, names=route.parameters)
    found = mode.split(context, tuple(args), dict(kwargs or {}))
    parts = found if isinstance(found, Parts) else Parts(found)
    if len(parts) != seen.world_size:
        raise SplitError(
            f"{mode.name}: its split function gave {len(parts)} parts for {seen.world_size} ranks; return "
            "one per rank, None for a rank that is not called"
        )
    answering = [rank for rank in mode.collecting(seen) if parts[rank] is not None]
    return Call(
        route, context=context, parts=parts, collecting_ranks=answering, world_size=topology.world_size
    )


def split(
    mode: Dispatch | str,
    topology: Topology,
    /,
    *args: Any,  # Any: arguments of the user's own method
    **kwargs: Any,  # Any: arguments of the user's own method
) -> list[Part | None]:
    """Return what each rank receives: `(args, kwargs)` by global rank, None for a rank that is not called.

    Raises:
        SplitError: when the arguments cannot be split, naming mode, argument, length and number of parts.

    Example:
        >>> split(Dispatch.DP_MP_COMPUTE, Topology.data_parallel(2), [1, 2, 3], scale=10)
        [(([1, 2],), {'scale': 10}), (([3],), {'scale': 10})]
    """
    return plan_call(Dispatch.named(mode), topology, args, kwargs).parts


def collect(
    mode: Dispatch | str, topology: Topology, outputs: Mapping[int, object] | Sequence[object]
) -> object:
    """Return the result that the outputs of the ranks make.

    Args:
        mode: the mode of the call. One whose arguments decide the order of the result (DIRECT, balanced,
            padded)
            is joined by the planned call, which remembers them.
        topology: the ranks.
        outputs: one output per rank in rank order, or a mapping that holds at least the collecting ranks.

    Raises:
        CollectError: when an output is missing, or the outputs do not fit together.

    Example:
        >>> collect(Dispatch.DP_MP_COMPUTE, Topology.data_parallel(2), [[1, 2], [3]])
        [1, 2, 3]
    """
    known = Dispatch.named(mode)
    if known.needs_call:
        raise CollectError(
            f"{known.name}: the arguments of the call decide how its outputs are joined; use "
            "plan_call(mode, topology, args, kwargs).collect(outputs)"
        )
    picked = pick(known.name, known.collecting(topology), outputs, topology.world_size)
    return known.collect(Context(mode=known.name, topology=topology), picked)


def check_arguments(method: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse, before anything is sent, arguments that do not fit the signature of a worker's method.

    Args:
        method: the function as its class holds it, with self.
        args, kwargs: the arguments of a call, without self.

    Raises:
        ArgumentError: naming the method, its signature and what does not fit.
    """
    import inspect  # here, as it costs more to import than all of this package

    signature = inspect.signature(method)
    try:
        signature.bind(None, *args, **kwargs)
    except TypeError as error:
        raise ArgumentError(f"{method.__qualname__}{signature}: {error}; nothing was sent") from None
