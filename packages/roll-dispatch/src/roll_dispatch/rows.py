"""Splitting by rows: evenly over axes, by cost, or as the caller says."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from roll_dispatch.arguments import Broadcast, Direct, Split
from roll_dispatch.balance import Method, balance
from roll_dispatch.context import Context, Parts
from roll_dispatch.errors import SplitError
from roll_dispatch.kinds import even_bounds
from roll_dispatch.layout import Layout, ranks_apart
from roll_dispatch.record import Record
from roll_dispatch.restore import Reorder, Trim
from roll_dispatch.split import Args, ArgumentPlan, Kwargs, Part
from roll_dispatch.topology import Topology

Empty = Literal["send", "skip"]
"""What happens to a part without rows: sent like the others, or its ranks are not called."""

Cost = str | Callable[..., Sequence[float]]
"""Name of the argument that holds a cost per row, or a function of the call's arguments that returns them."""


class RowSplit(Record):
    """Rows are cut evenly over some axes; ranks that differ only on other axes share a part."""

    axes: tuple[str, ...] = ("dp",)
    first_only: bool = False
    """Whether only the first rank of a part receives its rows."""
    pad: bool = False
    empty: Empty = "send"

    def __call__(self, context: Context, args: Args, kwargs: Kwargs) -> Parts:
        """Return what each rank receives."""
        layout = context.topology.layout(*self.axes)
        plan = _plan(context, layout, args, kwargs)
        if plan.rows is None:
            return Parts(_place(layout, plan.cut(even_bounds(0, layout.num_parts))))
        header = plan.header() if self.first_only else None
        if not (self.pad and plan.rows % layout.num_parts):
            bounds = even_bounds(plan.rows, layout.num_parts)
            pieces = plan.cut(bounds)
            counts = [stop - start for start, stop in bounds]
            return _parts(layout, pieces, counts, empty=self.empty, header=header)
        size = plan.rows // layout.num_parts + 1
        padded = even_bounds(size * layout.num_parts, layout.num_parts)
        counts = [max(0, min(stop, plan.rows) - start) for start, stop in padded]
        parts = _parts(layout, plan.cut_padded(padded), counts, empty="send", header=header)
        parts.back = Trim(sent=size, kept=tuple(counts[part] for part in layout.part_of))
        return parts


class BalancedSplit(Record):
    """Rows are divided over the DP ranks by cost."""

    cost: Cost
    equal_counts: bool = True
    method: Method = "auto"
    empty: Empty = "send"

    def __call__(self, context: Context, args: Args, kwargs: Kwargs) -> Parts:
        """Return what each rank receives."""
        layout = context.topology.layout("dp")
        plan = _plan(context, layout, args, kwargs)
        costs = self._costs(context, args, kwargs)
        if plan.rows is None or len(costs) != plan.rows:
            has = "no argument has rows" if plan.rows is None else f"the arguments have {plan.rows} rows"
            raise SplitError(f"{context.mode}: {len(costs)} costs are given but {has}; give one cost per row")
        division = balance(costs, layout.num_parts, equal_counts=self.equal_counts, method=self.method)
        return _regrouped(layout, plan, division.groups, empty=self.empty)

    def _costs(self, context: Context, args: Args, kwargs: Mapping[str, Any]) -> list[float]:  # Any: user's
        bare = [_bare(value) for value in args]
        named = {name: _bare(value) for name, value in kwargs.items()}
        if not isinstance(self.cost, str):
            return [*self.cost(*bare, **named)]
        known = {**dict(zip(context.names, bare, strict=False)), **named}
        if self.cost not in known:
            raise SplitError(
                f"{context.mode}: no argument {self.cost!r} holds the cost per row, only {sorted(known)}; "
                "pass it by keyword, or give Dispatch.balanced a function"
            )
        return [*known[self.cost]]


class DirectSplit(Record):
    """Rows go where the caller says: to global ranks, or to the parts of some axes."""

    axes: tuple[str, ...] = ()
    empty: Empty = "skip"

    def __call__(self, context: Context, args: Args, kwargs: Kwargs) -> Parts:
        """Return what each rank receives."""
        layout = direct_layout(context.topology, self.axes)
        plan = _plan(context, layout, args, kwargs, direct=True)
        groups: list[list[int]] = [[] for _ in range(layout.num_parts)]
        for row, to in enumerate(self._targets(context.mode, layout, plan)):
            groups[to].append(row)
        return _regrouped(layout, plan, groups, empty=self.empty)

    def _targets(self, mode: str, layout: Layout, plan: ArgumentPlan) -> tuple[int, ...]:
        targets = set(plan.routes.values())
        if len(targets) != 1:
            found = f"{list(plan.routes)} differ in theirs" if targets else "no argument does"
            raise SplitError(f"{mode}: one Direct(rows, to=[...]) says where rows go, but {found}")
        to = targets.pop()
        if len(to) != plan.rows:
            raise SplitError(f"{mode}: to= names {len(to)} targets for {plan.rows} rows; name one per row")
        outside = sorted({target for target in to if not 0 <= target < layout.num_parts})
        if outside:
            raise SplitError(f"{mode}: to= names {outside}, but {layout.name} is {layout.num_parts}")
        return to


class Answering(Record):
    """The rank that answers for each part of some axes, in the order of the parts."""

    axes: tuple[str, ...] = ("dp",)

    def __call__(self, topology: Topology) -> tuple[int, ...]:
        """Return the answering ranks of a topology."""
        return direct_layout(topology, self.axes).collecting


def direct_layout(topology: Topology, axes: tuple[str, ...]) -> Layout:
    """Return the layout over some axes, or the one in which every rank is a part when there are none."""
    return topology.layout(*axes) if axes else ranks_apart(topology.ranks)


def _plan(
    context: Context, layout: Layout, args: Args, kwargs: Kwargs, *, direct: bool = False
) -> ArgumentPlan:
    over = f"{layout.name} {layout.num_parts}"
    return ArgumentPlan(context.mode, over, args, kwargs, names=context.names, direct=direct)


def _regrouped(layout: Layout, plan: ArgumentPlan, groups: Sequence[Sequence[int]], *, empty: Empty) -> Parts:
    parts = _parts(layout, plan.take(groups), [len(group) for group in groups], empty=empty)
    order = [row for group in groups for row in group]
    places = [0] * len(order)
    for place, row in enumerate(order):
        places[row] = place
    counts = tuple(len(groups[part]) for part in layout.part_of)
    parts.back = Reorder(places=tuple(places), counts=counts)
    return parts


def _parts(
    layout: Layout, pieces: list[Part], counts: Sequence[int], *, empty: Empty, header: Part | None = None
) -> Parts:
    placed = _place(layout, pieces)
    if header is not None:
        placed = [piece if rank in layout.first else header for rank, piece in enumerate(placed)]
    if empty == "skip":
        # With no rows at all the first part is sent, so that an empty batch still has a result.
        sent = {part for part, count in enumerate(counts) if count} or {0}
        placed = [piece if part in sent else None for piece, part in zip(placed, layout.part_of, strict=True)]
    return Parts(placed, counts=counts, part_of=layout.part_of)


def _place(layout: Layout, pieces: list[Part]) -> list[Part | None]:
    return [pieces[part] for part in layout.part_of]


def _bare(value: Any) -> Any:  # Any: an argument of the user's own method
    return value.value if isinstance(value, (Broadcast, Split, Direct)) else value
