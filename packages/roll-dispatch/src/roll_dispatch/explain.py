"""What a mode does with rows on a topology, found by planning a call, and told as text."""

from collections.abc import Sequence
from typing import Any

from roll_dispatch.arguments import Direct
from roll_dispatch.axes import ALL_AXES, AXES, coordinate
from roll_dispatch.call import plan_call
from roll_dispatch.modes import Dispatch, joined, listed, only
from roll_dispatch.record import Record
from roll_dispatch.rows import BalancedSplit, DirectSplit, direct_layout
from roll_dispatch.topology import Topology


class Explanation(Record):
    """Which rows each rank of a call receives and which ranks answer. `str()` draws it as text."""

    mode: Dispatch
    topology: Topology
    received: tuple[tuple[int, ...] | None, ...]
    """The rows that each rank receives; None for a rank that is not called."""
    answering: tuple[int, ...]
    """The answering ranks in join order."""
    note: str
    """What happens to the joined rows, a clause; empty for nothing."""

    def __str__(self) -> str:
        axes = ALL_AXES if self.topology.ep_size > 1 else AXES
        head = " rank  " + "  ".join(f"{axis:>3}" for axis in axes) + "  answers  receives"
        lines = [f"{self.mode.name}: {self.mode.summary}", repr(self.topology), head]
        for info, rows in zip(self.topology, self.received, strict=True):
            places = "  ".join(f"{coordinate(info, axis):>3}" for axis in axes)
            mark = "*" if info.rank in self.answering else " "
            lines.append(f"{info.rank:>5}  {places}  {mark:^7}  {told(rows)}")
        return "\n".join([*lines, f"result: {self.result}"])

    @property
    def joins(self) -> bool:
        """Whether the result is the rows of the answering ranks, joined."""
        return self.mode.collect is joined

    @property
    def result(self) -> str:
        """What the result is made of, in words."""
        ranks = f"rank{'s' if len(self.answering) > 1 else ''} {spans(self.answering)}"
        if self.mode.collect is listed:
            return f"the list of the outputs of {ranks}, in this order"
        if not self.joins:
            return (
                f"the output of {ranks}" if self.mode.collect is only else f"made of the outputs of {ranks}"
            )
        sources = (f"{told(rows)} from rank {rank}" for rank, rows in self.answers.items())
        return ", then ".join(sources) + (f"; {self.note}" if self.note else "")

    @property
    def answers(self) -> dict[int, tuple[int, ...]]:
        """The rows that each answering rank answers for: those that its part holds, in join order."""
        layout = direct_layout(self.topology, getattr(self.mode.split, "axes", ("dp",)))
        parts: dict[int, tuple[int, ...]] = {}
        for part, rows in zip(layout.part_of, self.received, strict=True):
            parts[part] = max(parts.get(part, ()), rows or (), key=len)
        return {rank: parts[layout.part_of[rank]] for rank in self.answering}


def explain(
    mode: Dispatch,
    topology: Topology,
    rows: int,
    *,
    to: Sequence[int] | None = None,
    costs: Sequence[float] | None = None,
) -> Explanation:
    """Return which rows of a call go where.

    Args:
        mode: the mode.
        topology: the ranks.
        rows: number of rows of the one argument.
        to: for DIRECT, where each row goes; by default one rank after another.
        costs: for a balanced mode, the cost of each row; by default 1, 2, 3, ...

    Raises:
        SplitError: when such a call cannot be split.
    """
    numbers: Any = list(range(rows))  # Any: wrapped below as the mode wants it
    named = {}
    if isinstance(mode.split, DirectSplit):
        parts = direct_layout(topology, mode.split.axes).num_parts
        numbers = Direct(numbers, to=[row % parts for row in range(rows)] if to is None else to)
    if isinstance(mode.split, BalancedSplit) and isinstance(mode.split.cost, str):
        named = {mode.split.cost: list(range(1, rows + 1)) if costs is None else list(costs)}
    call = plan_call(mode, topology, (numbers,), named)
    received = tuple(None if part is None else _rows(part[0][0]) for part in call.parts)
    return Explanation(
        mode=mode,
        topology=topology,
        received=received,
        answering=call.collecting_ranks,
        note=call.note,
    )


def told(rows: Sequence[int] | None) -> str:
    """Return rows in words, such as "rows 0-2, 7"."""
    if rows is None:
        return "not called"
    return f"row{'s' if len(rows) > 1 else ''} {spans(rows)}" if rows else "no rows"


def spans(numbers: Sequence[int]) -> str:
    """Return numbers with runs shortened: "0-2, 7"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _rows(value: object) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, list) else (value,) if isinstance(value, int) else ()
