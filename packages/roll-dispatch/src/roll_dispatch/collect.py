"""Joining the outputs of the ranks into one result."""

from collections.abc import Mapping, Sequence

from roll_dispatch.arguments import Kind, kind_of
from roll_dispatch.errors import CollectError, SplitError

Outputs = Mapping[int, object]
"""Outputs by global rank, in the order in which they are joined."""


def join(mode: str, outputs: Outputs) -> object:
    """Return the outputs of the answering ranks as one result.

    Lists, tuples and splittables are joined in order; None from all is None; anything else (numbers, strings, dicts) is
    returned as a list with one item per rank.

    Raises:
        CollectError: when ranks return different kinds, or rows and None.
    """
    values = list(outputs.values())
    if all(value is None for value in values):
        return None
    kinds = {rank: _kind(value) for rank, value in outputs.items()}
    joinable = {rank: kind for rank, kind in kinds.items() if kind is not None}
    if not joinable:
        return values
    names = {_named(outputs[rank], kinds[rank]) for rank in outputs}
    if len(names) > 1:
        told = ", ".join(f"rank {rank}: {_named(outputs[rank], kinds[rank])}" for rank in outputs)
        raise CollectError(
            f"{mode}: the answering ranks return different kinds ({told}); return the same kind from each, an empty "
            "one for no rows, or declare a reducer"
        )
    try:
        return next(iter(joinable.values())).concat(values)
    except SplitError as error:
        raise CollectError(f"{mode}: {error}") from None


def pick(
    mode: str, ranks: Sequence[int], outputs: Mapping[int, object] | Sequence[object], world_size: int
) -> Outputs:
    """Return the outputs of the answering ranks, in the order in which they are joined.

    Args:
        mode: name of the mode, for messages.
        ranks: the answering ranks in order.
        outputs: one output per rank in rank order, or a mapping that holds at least the answering ranks.
        world_size: number of ranks.

    Raises:
        CollectError: when an output is missing, or a rank answers twice.
    """
    if len(set(ranks)) != len(ranks):
        raise CollectError(
            f"{mode}: rank(s) {sorted({r for r in ranks if ranks.count(r) > 1})} would answer twice"
        )
    if not isinstance(outputs, Mapping):
        if len(outputs) != world_size:
            raise CollectError(
                f"{mode}: {len(outputs)} outputs for {world_size} ranks; give one per rank in rank order, or a "
                "mapping from rank to output"
            )
        return {rank: outputs[rank] for rank in ranks}
    missing = [rank for rank in ranks if rank not in outputs]
    if missing:
        raise CollectError(
            f"{mode}: no output from answering rank(s) {missing}; rank(s) {sorted(outputs)} answered"
        )
    return {rank: outputs[rank] for rank in ranks}


def _kind(value: object) -> Kind | None:
    try:
        return kind_of(value)
    except SplitError:
        return None


def _named(value: object, kind: Kind | None) -> str:
    return "one value" if kind is None and value is not None else type(value).__name__
