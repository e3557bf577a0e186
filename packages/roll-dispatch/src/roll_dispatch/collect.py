"""Joining the outputs of the ranks into one result."""

from collections.abc import Mapping, Sequence

from roll_dispatch.errors import CollectError, SplitError
from roll_dispatch.kinds import Kind, kind_of

Outputs = Mapping[int, object]
"""Outputs by global rank, in the order in which they are joined."""


def pick(
    mode: str, ranks: Sequence[int], outputs: Mapping[int, object] | Sequence[object], world_size: int
) -> dict[int, object]:
    """Return the outputs of the answering ranks, in the order in which they are joined.

    Args:
        mode: name of the mode, for messages.
        ranks: the answering ranks in join order.
        outputs: one output per rank in rank order, or a mapping that holds at least the answering ranks.
        world_size: number of ranks.

    Raises:
        CollectError: when an answering rank is missing, or one answers twice.
    """
    if len(set(ranks)) < len(ranks):
        twice = sorted({rank for rank in ranks if ranks.count(rank) > 1})
        raise CollectError(f"{mode}: rank {twice} would answer twice; name each answering rank once")
    if isinstance(outputs, Mapping):
        missing = [rank for rank in ranks if rank not in outputs]
        if missing:
            raise CollectError(
                f"{mode}: no output from answering rank {missing}, only from {sorted(outputs)}; "
                f"the result is made of the outputs of {list(ranks)}"
            )
    elif len(outputs) != world_size:
        raise CollectError(
            f"{mode}: {len(outputs)} outputs for {world_size} ranks; give one per rank in rank order, or a "
            "mapping from rank to output"
        )
    return {rank: outputs[rank] for rank in ranks}


def join(mode: str, outputs: Outputs) -> object:
    """Return the outputs of the answering ranks as one result.

    Lists, tuples, arrays and splittables are joined in order; None from all is None; anything else (numbers,
    strings, dicts, records) is returned as a list with one item per answering rank.

    Args:
        mode: name of the mode, for messages.
        outputs: by rank, in join order.

    Raises:
        CollectError: when some ranks return rows and others return something else.
    """
    values = list(outputs.values())
    kind = common_kind(mode, outputs)
    if kind is None:
        return None if all(value is None for value in values) else values
    try:
        return kind.concat(values)
    except SplitError as error:
        raise CollectError(f"{mode}: {error}") from None
    except Exception as error:
        error.add_note(f"{mode}: raised while the outputs of ranks {list(outputs)} were joined")
        raise


def common_kind(mode: str, outputs: Outputs) -> Kind | None:
    """Return the kind of rows that the outputs are, or None when none of them is rows.

    Raises:
        CollectError: when they are not all of one kind.
    """
    if len(set(map(type, outputs.values()))) == 1:
        kind = _kind(next(iter(outputs.values())))
        if kind is not None and kind.trusted:
            return kind  # all lists or all tuples: no need to look at each
    kinds = {rank: _kind(value) for rank, value in outputs.items()}
    if not any(kinds.values()):
        return None
    names = {rank: _named(outputs[rank], kind) for rank, kind in kinds.items()}
    if len(set(names.values())) > 1:
        told = ", ".join(f"rank {rank} a {name}" for rank, name in names.items())
        raise CollectError(
            f"{mode}: the answering ranks return different kinds ({told}); return the same kind from each "
            "(an empty one where there are no rows), or declare a reducer"
        )
    return next(iter(kinds.values()))


def _kind(value: object) -> Kind | None:
    try:
        return kind_of(value)
    except SplitError:
        return None  # it has a length but no rows that we know: one value, as it is


def _named(value: object, kind: Kind | None) -> str:
    if kind is None:
        return type(value).__name__
    return kind.name if kind.trusted else type(value).__name__
