"""How the rows of a call lie over some axes of a topology."""

from collections.abc import Sequence

from roll_dispatch.axes import ALL_AXES, axis_size, coordinate, place
from roll_dispatch.errors import TopologyError
from roll_dispatch.rank_info import RankInfo
from roll_dispatch.record import Record


class Layout(Record):
    """Which part of the rows each rank works on, and which rank answers for a part."""

    name: str
    """What the parts are counted by, as messages say it: "dp size" or "dp x cp size"."""
    part_of: tuple[int, ...]
    """The part that each global rank works on."""
    collecting: tuple[int, ...]
    """The global rank that answers for each part."""
    first: frozenset[int]
    """The global rank of each part that stands at 0 on the other axes."""

    @property
    def num_parts(self) -> int:
        """Number of parts that the rows are cut into."""
        return len(self.collecting)


def ranks_apart(ranks: Sequence[RankInfo]) -> Layout:
    """Return the layout in which every rank is a part of its own."""
    everybody = tuple(range(len(ranks)))
    return Layout(name="world size", part_of=everybody, collecting=everybody, first=frozenset(everybody))


def lay_out(ranks: Sequence[RankInfo], axes: tuple[str, ...]) -> Layout:
    """Return how rows lie over some axes.

    Args:
        ranks: the ranks of a topology, in rank order.
        axes: names of axes, the slowest first.

    Raises:
        TopologyError: for no axis, an unknown or a repeated one, or ep together with dp or cp, over which it
            lies.
    """
    check_axes(axes)
    parts = [_part(info, axes) for info in ranks]
    answering: dict[int, RankInfo] = {}
    first: dict[int, RankInfo] = {}
    # Of several ranks of a part, the one at the least place stands for it: the last one written.
    for info in sorted(ranks, key=place, reverse=True):
        part = parts[info.rank]
        first[part] = info
        if ("tp" in axes or info.tp_rank == 0) and ("pp" in axes or info.is_pipeline_last_stage):
            answering[part] = info
    return Layout(
        name=" x ".join(axes) + " size",
        part_of=tuple(parts),
        collecting=tuple(answering[part].rank for part in sorted(answering)),
        first=frozenset(info.rank for info in first.values()),
    )


def _part(info: RankInfo, axes: tuple[str, ...]) -> int:
    part = 0
    for axis in axes:
        part = part * axis_size(info, axis) + coordinate(info, axis)
    return part


def check_axes(axes: tuple[str, ...]) -> None:
    """Raise TopologyError unless rows can lie over these axes, on whatever topology."""
    if not axes or len(set(axes)) != len(axes) or not set(axes) <= set(ALL_AXES):
        known = ", ".join(ALL_AXES)
        raise TopologyError(f"rows lie over one or more different axes of {known}, not over {axes}")
    if "ep" in axes and {"dp", "cp"} & set(axes):
        raise TopologyError(f"ep lies over dp x cp, so rows lie over ep or over dp and cp, not over {axes}")
