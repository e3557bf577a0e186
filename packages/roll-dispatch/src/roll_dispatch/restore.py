"""The ways back: padding taken off, and rows put back in the caller's order."""

from typing import ClassVar

from roll_dispatch.collect import Outputs, common_kind
from roll_dispatch.errors import CollectError
from roll_dispatch.kinds import Kind, kind_of
from roll_dispatch.record import Record


class Trim(Record):
    """Takes off what ranks return for rows that were repeated to fill their part."""

    sent: int
    """Number of rows of every part, repeated ones included."""
    kept: tuple[int, ...]
    """Number of rows that each rank's output keeps."""

    words: ClassVar[str] = "repeated rows are taken off"

    def outputs(self, mode: str, outputs: Outputs) -> Outputs:
        """Return the outputs cut to the rows of the caller.

        Raises:
            CollectError: when an output is rows but not a row per row sent, so that none can be told apart.
        """
        kind = common_kind(mode, outputs)
        if kind is None:
            return outputs
        _check_lengths(mode, kind, outputs, dict.fromkeys(outputs, self.sent), why="padded")
        return {
            rank: value if self.kept[rank] == self.sent else kind.cut(value, [(0, self.kept[rank])])[0]
            for rank, value in outputs.items()
        }

    def result(self, mode: str, outputs: Outputs, result: object) -> object:
        """Return the result as it is."""
        return result


class Reorder(Record):
    """Puts the rows of a result back in the order in which the caller gave them."""

    places: tuple[int, ...]
    """For each row of the caller, its place in the joined result."""
    counts: tuple[int, ...]
    """Number of rows that each rank worked on."""

    words: ClassVar[str] = "rows are put back in the caller's order"

    def outputs(self, mode: str, outputs: Outputs) -> Outputs:
        """Return the outputs as they are."""
        return outputs

    def result(self, mode: str, outputs: Outputs, result: object) -> object:
        """Return the result in the caller's order; a result without rows stays as it is.

        Raises:
            CollectError: when an output is rows but not a row per row sent.
        """
        kind = common_kind(mode, outputs)
        if kind is None:
            return result
        _check_lengths(mode, kind, outputs, {rank: self.counts[rank] for rank in outputs}, why="regrouped")
        joined = kind_of(result)
        return result if joined is None else joined.take(result, self.places)


def _check_lengths(mode: str, kind: Kind, outputs: Outputs, due: dict[int, int], *, why: str) -> None:
    for rank, value in outputs.items():
        length = kind.length(value)
        if length != due[rank]:
            raise CollectError(
                f"{mode}: rank {rank} was sent {due[rank]} rows and returned {length}, and the rows of this "
                f"call were {why}, so a result has a row per row sent; return that, a dict or number per "
                "rank, or declare a reducer"
            )
