"""The modes of dispatch: each is a value with two pure functions and a sentence."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from roll_dispatch.collect import Outputs, join
from roll_dispatch.errors import RegisterError
from roll_dispatch.record import Record
from roll_dispatch.split import ArgumentPlan, Args, Kwargs, Part, even_bounds, per_rank, unwrap
from roll_dispatch.topology import Topology


class Context(Record):
    """What a splitting function is told beside the arguments."""

    topology: Topology
    names: tuple[str, ...] = ()
    """Names of the positional parameters, for messages."""


class Parts(list["Part | None"]):
    """What each rank receives, with the way back where the arguments decide it."""

    collect: Callable[[Outputs], object] | None = None


SplitFunction = Callable[[Context, Args, Kwargs], Sequence[Part | None]]
CollectFunction = Callable[[Topology, Outputs], object]


class Dispatch(Record):
    """A mode: how the arguments of a call are split over the ranks and how their outputs are joined."""

    name: str
    """What errors and `explain` call it."""
    summary: str
    """One sentence."""
    split: SplitFunction
    collect: CollectFunction
    collecting: Callable[[Topology], Sequence[int]]
    """The ranks whose outputs make the result, in the order in which they are joined."""

    ONE_TO_ALL: ClassVar["Dispatch"]
    ONE_TO_ALL_ONE: ClassVar["Dispatch"]
    ALL_TO_ALL: ClassVar["Dispatch"]
    DP_MP_COMPUTE: ClassVar["Dispatch"]
    DP_MP_DISPATCH_FIRST: ClassVar["Dispatch"]
    DP_MP_DISPATCH_FIRST_COLLECT_ALL: ClassVar["Dispatch"]

    def __repr__(self) -> str:
        return f"<Dispatch {self.name}>"

    def __reduce__(self) -> tuple[object, ...]:
        return (getattr, (Dispatch, self.name)) if hasattr(Dispatch, self.name) else super().__reduce__()


class RowSplit(Record):
    """Split by rows over some axes; ranks of one part share the part."""

    name: str
    axes: tuple[str, ...] = ("dp",)
    first_only: bool = False

    def __call__(self, context: Context, args: Args, kwargs: Kwargs) -> Parts:
        topology = context.topology
        layout = topology.layout(*self.axes)
        plan = ArgumentPlan(self.name, f"{layout.name} size {layout.num_parts}", args, kwargs, context.names)
        pieces = plan.cut(even_bounds(plan.rows or 0, layout.num_parts))
        if not self.first_only:
            return Parts(pieces[part] for part in layout.part_of)
        header = plan.header()
        return Parts(
            pieces[part] if rank in layout.first else header for rank, part in enumerate(layout.part_of)
        )


def _all_ranks(topology: Topology) -> Sequence[int]:
    return range(topology.world_size)


def _rank_zero(topology: Topology) -> Sequence[int]:
    return (0,)


def _dp_ranks(topology: Topology) -> Sequence[int]:
    return topology.collecting_ranks


def _one_to_all(context: Context, args: Args, kwargs: Kwargs) -> Parts:
    return Parts([unwrap(args, kwargs)] * context.topology.world_size)


def _all_to_all(context: Context, args: Args, kwargs: Kwargs) -> Parts:
    return Parts(per_rank("ALL_TO_ALL", context.topology.world_size, args, kwargs, context.names))


def _every(topology: Topology, outputs: Outputs) -> object:
    return list(outputs.values())


def _first(topology: Topology, outputs: Outputs) -> object:
    return next(iter(outputs.values()))


def _joined(name: str) -> CollectFunction:
    return lambda topology, outputs: join(name, outputs)


Dispatch.ONE_TO_ALL = Dispatch(
    name="ONE_TO_ALL",
    summary="Every rank receives the same arguments; the result lists every rank's output in rank order.",
    split=_one_to_all,
    collect=_every,
    collecting=_all_ranks,
)
Dispatch.ONE_TO_ALL_ONE = Dispatch(
    name="ONE_TO_ALL_ONE",
    summary="Every rank receives the same arguments; the result is the output of rank 0.",
    split=_one_to_all,
    collect=_first,
    collecting=_rank_zero,
)
Dispatch.ALL_TO_ALL = Dispatch(
    name="ALL_TO_ALL",
    summary="Rank i receives item i of each argument; the result lists every rank's output in rank order.",
    split=_all_to_all,
    collect=_every,
    collecting=_all_ranks,
)
Dispatch.DP_MP_COMPUTE = Dispatch(
    name="DP_MP_COMPUTE",
    summary="Rows are split over DP ranks and shared by their TP, PP and CP peers; one rank per DP rank answers.",
    split=RowSplit(name="DP_MP_COMPUTE"),
    collect=_joined("DP_MP_COMPUTE"),
    collecting=_dp_ranks,
)
Dispatch.DP_MP_DISPATCH_FIRST = Dispatch(
    name="DP_MP_DISPATCH_FIRST",
    summary="Rows go to the first rank of each DP rank only, its peers get no rows; one rank per DP rank answers.",
    split=RowSplit(name="DP_MP_DISPATCH_FIRST", first_only=True),
    collect=_joined("DP_MP_DISPATCH_FIRST"),
    collecting=_dp_ranks,
)
Dispatch.DP_MP_DISPATCH_FIRST_COLLECT_ALL = Dispatch(
    name="DP_MP_DISPATCH_FIRST_COLLECT_ALL",
    summary="Rows go to the first rank of each DP rank only; the result lists every rank's output in rank order.",
    split=RowSplit(name="DP_MP_DISPATCH_FIRST_COLLECT_ALL", first_only=True),
    collect=_every,
    collecting=_all_ranks,
)
