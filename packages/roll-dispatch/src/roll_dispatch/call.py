"""One planned call: what is sent to each rank and how the outputs are joined."""

from collections.abc import Mapping, Sequence
from typing import Any

from roll_dispatch.collect import pick
from roll_dispatch.errors import SplitError
from roll_dispatch.modes import Context, Dispatch, Parts
from roll_dispatch.register import Execute, Route
from roll_dispatch.split import Args, Part
from roll_dispatch.topology import Topology

_ONE_RANK = Topology.from_sizes(1)


class Call:
    """A call whose arguments are split. Parts that several ranks share are the same object.

    Args:
        route: how the method is registered.
        topology: the ranks.
        parts: what each rank receives.
        collecting_ranks: the ranks whose outputs make the result, in join order.
    """

    __slots__ = ("_topology", "collecting_ranks", "parts", "route")

    def __init__(
        self, *, route: Route, topology: Topology, parts: Parts, collecting_ranks: Sequence[int]
    ) -> None:
        self.route = route
        self._topology = topology
        self.parts: Sequence[Part | None] = parts
        """`(args, kwargs)` by global rank; None for a rank that is not called."""
        self.collecting_ranks = tuple(collecting_ranks)
        """Global ranks whose outputs make the result, in the order in which they are joined."""

    def collect(self, outputs: Mapping[int, object] | Sequence[object]) -> object:
        """Return the result of the call.

        Args:
            outputs: a mapping from rank to output that holds at least the collecting ranks, or one output per rank.

        Raises:
            CollectError: when an output is missing or the outputs do not fit together.
        """
        mode = self.route.dispatch_mode
        picked = pick(mode.name, self.collecting_ranks, outputs, len(self.parts))
        if self.route.reducer is not None:
            return self.route.reducer(list(picked.values()))
        restore = getattr(self.parts, "collect", None)
        return restore(picked) if restore is not None else mode.collect(self._topology, picked)


def plan_call(
    route_or_mode: Route | Dispatch,
    topology: Topology,
    args: Args = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Call:
    """Return the call with its arguments split: what the executor sends and how it joins what comes back.

    Raises:
        SplitError: when the arguments cannot be split, before anything is sent.
    """
    route = route_or_mode if isinstance(route_or_mode, Route) else Route(dispatch_mode=route_or_mode)
    alone = route.execute_mode is Execute.RANK_ZERO
    seen = _ONE_RANK if alone else topology
    mode = route.dispatch_mode
    parts = mode.split(Context(topology=seen, names=route.parameters), tuple(args), dict(kwargs or {}))
    if len(parts) != seen.world_size:
        raise SplitError(
            f"{mode.name}: its split function gave {len(parts)} parts for {seen.world_size} ranks; give one per rank, None for a rank that is not called"
        )
    full = parts if isinstance(parts, Parts) else Parts(parts)
    collecting = [rank for rank in mode.collecting(seen) if full[rank] is not None]
    if alone:
        full.extend([None] * (topology.world_size - 1))
    return Call(route=route, topology=seen, parts=full, collecting_ranks=collecting)


def split(
    mode: Dispatch,
    topology: Topology,
    /,
    *args: Any,
    **kwargs: Any,  # Any: arguments of the user's own method
) -> Sequence[Part | None]:
    """Return what each rank receives: `(args, kwargs)` by global rank, None for a rank that is not called.

    Example:
        >>> split(Dispatch.DP_MP_COMPUTE, Topology.from_sizes(2), [1, 2, 3])
        [(([1, 2],), {}), (([3],), {})]
    """
    return plan_call(mode, topology, args, kwargs).parts


def collect(mode: Dispatch, topology: Topology, outputs: Mapping[int, object] | Sequence[object]) -> object:
    """Return the result that the outputs of the ranks make.

    Example:
        >>> collect(Dispatch.DP_MP_COMPUTE, Topology.from_sizes(2), [[1, 2], [3]])
        [1, 2, 3]
    """
    return mode.collect(topology, pick(mode.name, mode.collecting(topology), outputs, topology.world_size))
