"""The laws of a topology, each broken one told in words."""

from collections.abc import Iterator, Sequence

from roll_dispatch.axes import ALL_AXES, AXES, axis_size, coordinate, place
from roll_dispatch.rank_info import RankInfo


def violations(ranks: Sequence[RankInfo]) -> list[str]:
    """Return every law that these coordinates break, one sentence each; none for a topology.

    Args:
        ranks: what the workers of one role say of themselves, in any order.
    """
    if not ranks:
        return ["there are no ranks; a topology has at least one"]
    checks = (_numbering, _agreement, _sizes, _ranges, _places, _answers, _experts)
    return [sentence for check in checks for sentence in check(ranks)]


def _numbering(ranks: Sequence[RankInfo]) -> Iterator[str]:
    world = len(ranks)
    present: dict[int, int] = {}
    for info in ranks:
        present[info.rank] = present.get(info.rank, 0) + 1
    repeated = sorted(rank for rank, count in present.items() if count > 1)
    missing = [rank for rank in range(world) if rank not in present]
    outside = sorted(rank for rank in present if not 0 <= rank < world)
    if repeated:
        yield f"rank {_some(repeated)} occurs more than once"
    if missing:
        yield f"rank {_some(missing)} is missing of 0 to {world - 1}"
    if outside:
        yield f"rank {_some(outside)} is outside of 0 to {world - 1}"


def _agreement(ranks: Sequence[RankInfo]) -> Iterator[str]:
    for what in ("world_size", *(f"{axis}_size" for axis in ALL_AXES)):
        told: dict[int, list[int]] = {}
        for info in ranks:
            told.setdefault(getattr(info, what), []).append(info.rank)
        if len(told) > 1:
            claims = "; ".join(f"{size} on rank {_some(who)}" for size, who in sorted(told.items()))
            yield f"{what} is not the same on all ranks: {claims}"


def _sizes(ranks: Sequence[RankInfo]) -> Iterator[str]:
    info, world = ranks[0], len(ranks)
    product = info.dp_size * info.tp_size * info.pp_size * info.cp_size
    if info.world_size != world:
        yield f"world_size is {info.world_size}, but there are {world} ranks"
    if product != world:
        spelled = " x ".join(f"{axis} {axis_size(info, axis)}" for axis in AXES)
        yield f"{spelled} = {product}, but there are {world} ranks"
    shards = info.dp_size * info.cp_size
    if info.ep_size < 1 or shards % info.ep_size:
        yield f"ep {info.ep_size} does not divide dp {info.dp_size} x cp {info.cp_size} = {shards}"


def _ranges(ranks: Sequence[RankInfo]) -> Iterator[str]:
    for info in ranks:
        for axis in ALL_AXES:
            at, size = coordinate(info, axis), axis_size(info, axis)
            if not 0 <= at < size:
                yield f"rank {info.rank} has {axis}_rank {at}, but {axis}_size is {size}"


def _places(ranks: Sequence[RankInfo]) -> Iterator[str]:
    standing: dict[tuple[int, ...], list[RankInfo]] = {}
    for info in ranks:
        standing.setdefault(place(info), []).append(info)
    for where in sorted(standing):
        who = standing[where]
        if len(who) > 1:
            spelled = ", ".join(f"{axis}={coordinate(who[0], axis)}" for axis in AXES)
            yield f"ranks {_some([info.rank for info in who])} all stand at {spelled}"


def _answers(ranks: Sequence[RankInfo]) -> Iterator[str]:
    answering: dict[int, list[int]] = {}
    for info in ranks:
        if info.is_collecting:
            answering.setdefault(info.dp_rank, []).append(info.rank)
    for dp in range(ranks[0].dp_size):
        who = answering.get(dp, [])
        if len(who) != 1:
            named = f"ranks {_some(who)}" if who else "none"
            yield f"dp rank {dp} needs exactly one collecting rank (tp 0, cp 0, last stage) and has {named}"


def _experts(ranks: Sequence[RankInfo]) -> Iterator[str]:
    size = ranks[0].ep_size
    groups: dict[tuple[int, ...], dict[int, int]] = {}
    for info in ranks:
        seen = groups.setdefault(place(info, ("tp", "pp")), {})
        seen[info.ep_rank] = seen.get(info.ep_rank, 0) + 1
    for (tp, pp), seen in sorted(groups.items()):
        if any(count * size != sum(seen.values()) for count in seen.values()):
            told = ", ".join(f"{ep} x{count}" for ep, count in sorted(seen.items()))
            yield f"at tp={tp}, pp={pp} the ep ranks do not occur equally often with ep_size {size}: {told}"


def _some(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"
