"""What the functions of a mode are told, and what they give."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from roll_dispatch.collect import Outputs
from roll_dispatch.record import Record
from roll_dispatch.split import Args, Kwargs, Part
from roll_dispatch.topology import Topology


class Context(Record):
    """What the functions of a mode are told beside arguments and outputs."""

    mode: str
    """Name of the mode, for messages."""
    topology: Topology
    names: tuple[str, ...] = ()
    """Names of the positional parameters, where they are known."""


class WayBack(Protocol):
    """How a result is brought back to the rows of the caller, where the arguments of the call decide it."""

    words: ClassVar[str]
    """What happens on the way back, a clause."""

    def outputs(self, mode: str, outputs: Outputs) -> Outputs:
        """Return the outputs without what was added to fill the parts."""

    def result(self, mode: str, outputs: Outputs, result: object) -> object:
        """Return the result of these outputs with its rows in the caller's order."""


class Parts(list[Part | None]):
    """What each rank receives, with what the way back needs to know of it.

    Args:
        parts: `(args, kwargs)` by global rank, None for a rank that is not called.
        rows: number of rows that each rank works on, padding not counted; None when no argument has rows.
        back: how the result is brought back, where that is more than joining.
    """

    def __init__(
        self,
        parts: Sequence[Part | None],
        *,
        rows: Sequence[int] | None = None,
        back: WayBack | None = None,
    ) -> None:
        super().__init__(parts)
        self.rows = rows
        self.back = back


SplitFunction = Callable[[Context, Args, Kwargs], Sequence[Part | None]]
CollectFunction = Callable[[Context, Outputs], object]
