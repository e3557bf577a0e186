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
        counts: number of rows of each part, padding not counted; empty when no argument has rows.
        part_of: the part that each rank works on.
        back: how the result is brought back, where that is more than joining.
    """

    def __init__(
        self,
        parts: Sequence[Part | None],
        *,
        counts: Sequence[int] = (),
        part_of: Sequence[int] = (),
        back: WayBack | None = None,
    ) -> None:
        super().__init__(parts)
        self._counts = counts
        self._part_of = part_of
        self.back = back

    @property
    def rows(self) -> list[int] | None:
        """Number of rows that each rank works on, padding not counted; None when no argument has rows."""
        return [self._counts[part] for part in self._part_of] if self._counts else None


SplitFunction = Callable[[Context, Args, Kwargs], Sequence[Part | None]]
CollectFunction = Callable[[Context, Outputs], object]
