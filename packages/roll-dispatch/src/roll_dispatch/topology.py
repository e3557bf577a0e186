"""All workers of a role and the laws that their coordinates keep."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from roll_dispatch.errors import TopologyError
from roll_dispatch.rank_info import RankInfo

AXES = ("dp", "tp", "pp", "cp")
"""The four axes that place a rank: their sizes multiply to the world size."""


class Topology:
    """The workers of one role in rank order, with the laws of their coordinates checked once.

    The laws: ranks are 0 to world_size - 1, once each; all ranks tell the same sizes; dp x tp x pp x cp is the world size;
    no two ranks stand at the same (dp, tp, pp, cp); each DP rank has exactly one collecting rank; ep divides
    dp x cp and each expert rank occurs equally often.

    Args:
        ranks: the coordinates of every worker, in any order.

    Raises:
        TopologyError: naming every broken law at once.
    """

    __slots__ = ("_by_coordinates", "_hash", "_layouts", "ranks")

    def __init__(self, ranks: Iterable[RankInfo]) -> None:
        found = tuple(ranks)
        violations = list(_violations(found))
        if violations:
            listed = "\n".join(f"  - {violation}" for violation in violations)
            raise TopologyError(
                f"{len(found)} RankInfo(s) make no topology:\n{listed}\n"
                "Correct the coordinates that the workers publish, or build them with Topology.from_sizes."
            )
        self.ranks: tuple[RankInfo, ...] = tuple(sorted(found, key=lambda info: info.rank))
        self._by_coordinates = {tuple(coordinate(i, a) for a in AXES): i.rank for i in self.ranks}
        self._layouts: dict[tuple[str, ...], Layout] = {}

    @classmethod
    def from_sizes(
        cls,
        world_size: int,
        *,
        tp: int = 1,
        pp: int = 1,
        cp: int = 1,
        ep: int = 1,
        order: str = "tp-cp-dp-pp",
    ) -> Self:
        """Return the topology in which ranks count through the axes, the first named one fastest.

        Args:
            world_size: number of workers; dp is what tp, pp and cp leave.
            tp, pp, cp: sizes of the axes.
            ep: size of the expert axis, which divides dp x cp.
            order: every axis once, from the fastest to the slowest. The default is Megatron's; an "ep" in it
                is accepted, as Megatron writes it, and counts with dp and cp.

        Returns:
            A topology whose laws hold.

        Raises:
            TopologyError: when the sizes do not fit the world size, or the order does not name the axes.

        Example:
            >>> [info.dp_rank for info in Topology.from_sizes(4, tp=2)]
            [0, 0, 1, 1]
        """
        axes = _axes_of(order)
        sizes = {"tp": tp, "pp": pp, "cp": cp}
        wrong = {
            name: size for name, size in {**sizes, "ep": ep, "world_size": world_size}.items() if size < 1
        }
        if wrong:
            raise TopologyError(f"sizes are 1 or more, not {wrong}; leave out what is not parallel")
        model = tp * pp * cp
        if world_size % model:
            raise TopologyError(
                f"world_size {world_size} is not a multiple of tp {tp} x pp {pp} x cp {cp} = {model}; "
                f"use a multiple of {model}, such as {world_size - world_size % model + model}"
            )
        sizes["dp"] = world_size // model
        if (sizes["dp"] * cp) % ep:
            raise TopologyError(
                f"ep {ep} does not divide dp {sizes['dp']} x cp {cp} = {sizes['dp'] * cp}; choose an ep that does"
            )
        return cls(_count(world_size, sizes=sizes, ep=ep, axes=axes))

    @classmethod
    def data_parallel(cls, world_size: int) -> Self:
        """Return the topology in which every worker is its own DP rank."""
        return cls.from_sizes(world_size)

    @property
    def world_size(self) -> int:
        """Number of workers."""
        return len(self.ranks)

    @property
    def dp_size(self) -> int:
        """Number of DP ranks."""
        return self.ranks[0].dp_size

    @property
    def tp_size(self) -> int:
        """Size of the tensor parallel axis."""
        return self.ranks[0].tp_size

    @property
    def pp_size(self) -> int:
        """Number of pipeline stages."""
        return self.ranks[0].pp_size

    @property
    def cp_size(self) -> int:
        """Size of the context parallel axis."""
        return self.ranks[0].cp_size

    @property
    def ep_size(self) -> int:
        """Size of the expert parallel axis."""
        return self.ranks[0].ep_size

    @property
    def collecting_ranks(self) -> tuple[int, ...]:
        """The rank that answers for each DP rank, in DP order."""
        return self.layout("dp").collecting

    def rank_at(self, *, dp: int = 0, tp: int = 0, pp: int = 0, cp: int = 0) -> int:
        """Return the global rank at these coordinates.

        Raises:
            TopologyError: when a coordinate is outside of its axis.
        """
        rank = self._by_coordinates.get((dp, tp, pp, cp))
        if rank is None:
            raise TopologyError(
                f"no rank at dp={dp}, tp={tp}, pp={pp}, cp={cp}; the sizes are {self.sizes()}"
            )
        return rank

    def sizes(self) -> dict[str, int]:
        """Return the size of every axis by name."""
        return {axis: axis_size(self.ranks[0], axis) for axis in (*AXES, "ep")}

    def layout(self, *axes: str) -> "Layout":
        """Return how rows lie over some axes: which part each rank works on and which rank answers for a part.

        Args:
            axes: names of axes, the first one the slowest: ("dp", "cp") puts the parts of one DP rank side by side.

        Raises:
            TopologyError: for an unknown or repeated axis, or ep together with dp or cp, over which it lies.
        """
        if axes not in self._layouts:
            self._layouts[axes] = _lay_out(self, axes)
        return self._layouts[axes]

    def __len__(self) -> int:
        return len(self.ranks)

    def __iter__(self) -> Iterator[RankInfo]:
        return iter(self.ranks)

    def __getitem__(self, rank: int) -> RankInfo:
        return self.ranks[rank]

    def __eq__(self, other: object) -> bool:
        return self.ranks == other.ranks if isinstance(other, Topology) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.ranks)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.ranks,)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{axis}={size}" for axis, size in self.sizes().items() if size > 1)
        return f"<Topology of {self.world_size} rank(s){': ' if sizes else ''}{sizes}>"

    def __str__(self) -> str:
        """Return a table with a line per rank; `*` marks the ranks that answer."""
        axes = [*AXES, "ep"] if self.ep_size > 1 else list(AXES)
        collecting = set(self.collecting_ranks)
        head = f"{self!r}\n rank  " + "  ".join(f"{axis:>3}" for axis in axes) + "  answers"
        lines = (
            f"{info.rank:>5}  "
            + "  ".join(f"{coordinate(info, axis):>3}" for axis in axes)
            + ("  *" if info.rank in collecting else "")
            for info in self.ranks
        )
        return "\n".join((head, *lines))


class Layout:
    """How rows lie over some axes of a topology."""

    __slots__ = ("collecting", "first", "members", "name", "num_parts", "part_of")

    def __init__(
        self, *, name: str, part_of: Sequence[int], collecting: Sequence[int], first: Sequence[int]
    ) -> None:
        self.name = name
        """The axes, as an error names them: "dp" or "dp x cp"."""
        self.part_of = tuple(part_of)
        """The part that each global rank works on."""
        self.collecting = tuple(collecting)
        """The global rank that answers for each part."""
        self.first = frozenset(first)
        """The global rank of each part whose other coordinates are all 0."""
        self.num_parts = len(self.collecting)


def coordinate(info: RankInfo, axis: str) -> int:
    """Return where a rank stands on an axis."""
    value: int = getattr(info, f"{axis}_rank")
    return value


def axis_size(info: RankInfo, axis: str) -> int:
    """Return the size of an axis, as a rank tells it."""
    value: int = getattr(info, f"{axis}_size")
    return value


def _axes_of(order: str) -> list[str]:
    axes = order.split("-")
    if sorted(axis for axis in axes if axis != "ep") != sorted(AXES) or axes.count("ep") > 1:
        raise TopologyError(
            f"order {order!r} does not name each of {', '.join(AXES)} once; write them from fastest to slowest, "
            "joined by '-', such as 'tp-cp-dp-pp'"
        )
    return axes


def _count(world_size: int, *, sizes: dict[str, int], ep: int, axes: list[str]) -> Iterator[RankInfo]:
    experts_last = "ep" in axes and axes.index("ep") > axes.index("dp")
    for rank in range(world_size):
        at, rest, expert, stride = {}, rank, 0, 1
        for axis in axes:
            if axis == "ep":
                continue
            rest, at[axis] = divmod(rest, sizes[axis])
            if axis in ("dp", "cp"):
                expert += at[axis] * stride
                stride *= sizes[axis]
        ep_rank = expert // (stride // ep) if experts_last else expert % ep
        yield RankInfo(
            rank=rank,
            world_size=world_size,
            ep_rank=ep_rank,
            ep_size=ep,
            **{f"{axis}_rank": place for axis, place in at.items()},
            **{f"{axis}_size": size for axis, size in sizes.items()},
        )


def _lay_out(topology: Topology, axes: tuple[str, ...]) -> Layout:
    known = (*AXES, "ep")
    if not axes or len(set(axes)) != len(axes) or not set(axes) <= set(known):
        raise TopologyError(
            f"rows lie over one or more different axes of {', '.join(known)}, not over {axes}"
        )
    if "ep" in axes and {"dp", "cp"} & set(axes):
        raise TopologyError(f"ep lies over dp x cp, so rows lie over ep or over dp and cp, not over {axes}")
    parts: list[int] = []
    num_parts = 1
    for axis in axes:
        num_parts *= axis_size(topology.ranks[0], axis)
    answering: dict[int, RankInfo] = {}
    first: dict[int, RankInfo] = {}
    rest = [axis for axis in AXES if axis not in axes]
    for info in topology:
        part = 0
        for axis in axes:
            part = part * axis_size(info, axis) + coordinate(info, axis)
        parts.append(part)
        if all(
            coordinate(info, axis) == (info.pp_size - 1 if axis == "pp" else 0)
            for axis in rest
            if axis in ("tp", "pp")
        ):
            best = answering.get(part)
            if best is None or _key(info, rest) < _key(best, rest):
                answering[part] = info
        best = first.get(part)
        if best is None or _key(info, rest) < _key(best, rest):
            first[part] = info
    return Layout(
        name=" x ".join(axes),
        part_of=parts,
        collecting=[answering[part].rank for part in range(num_parts)],
        first=[info.rank for info in first.values()],
    )


def _key(info: RankInfo, axes: Sequence[str]) -> tuple[int, ...]:
    return tuple(coordinate(info, axis) for axis in axes)


def _violations(ranks: tuple[RankInfo, ...]) -> Iterator[str]:
    if not ranks:
        yield "there are no ranks; a topology has at least one"
        return
    world = len(ranks)
    counts: dict[int, int] = {}
    for info in ranks:
        counts[info.rank] = counts.get(info.rank, 0) + 1
    repeated = sorted(rank for rank, count in counts.items() if count > 1)
    missing = [rank for rank in range(world) if rank not in counts]
    outside = sorted(rank for rank in counts if not 0 <= rank < world)
    if repeated:
        yield f"rank(s) {_some(repeated)} occur more than once"
    if missing:
        yield f"rank(s) {_some(missing)} are missing of 0 to {world - 1}"
    if outside:
        yield f"rank(s) {_some(outside)} are outside of 0 to {world - 1}"
    for what in ("world_size", *(f"{axis}_size" for axis in (*AXES, "ep"))):
        told: dict[int, list[int]] = {}
        for info in ranks:
            told.setdefault(getattr(info, what), []).append(info.rank)
        if len(told) > 1:
            claims = "; ".join(f"{size} by rank(s) {_some(who)}" for size, who in sorted(told.items()))
            yield f"{what} is not the same on all ranks: {claims}"
    yield from _size_violations(ranks[0], world)
    yield from _coordinate_violations(ranks)


def _size_violations(info: RankInfo, world: int) -> Iterator[str]:
    sizes = {axis: axis_size(info, axis) for axis in AXES}
    product = info.dp_size * info.tp_size * info.pp_size * info.cp_size
    spelled = " x ".join(f"{axis} {size}" for axis, size in sizes.items())
    if info.world_size != world:
        yield f"world_size is {info.world_size}, but there are {world} ranks"
    if product != world:
        yield f"{spelled} = {product}, but there are {world} ranks"
    shards = info.dp_size * info.cp_size
    if info.ep_size < 1 or shards % info.ep_size:
        yield f"ep {info.ep_size} does not divide dp {info.dp_size} x cp {info.cp_size} = {shards}"


def _coordinate_violations(ranks: tuple[RankInfo, ...]) -> Iterator[str]:
    places: dict[tuple[int, ...], list[int]] = {}
    collecting: dict[int, list[int]] = {}
    experts: dict[tuple[int, int], list[int]] = {}
    for info in ranks:
        for axis in (*AXES, "ep"):
            if not 0 <= coordinate(info, axis) < axis_size(info, axis):
                yield (
                    f"rank {info.rank} has {axis}_rank {coordinate(info, axis)}, "
                    f"outside of 0 to {axis_size(info, axis) - 1}"
                )
        places.setdefault(_key(info, AXES), []).append(info.rank)
        experts.setdefault((info.tp_rank, info.pp_rank), []).append(info.ep_rank)
        if info.is_collecting:
            collecting.setdefault(info.dp_rank, []).append(info.rank)
    for place, who in sorted(places.items()):
        if len(who) > 1:
            spelled = ", ".join(f"{axis}={at}" for axis, at in zip(AXES, place, strict=True))
            yield f"ranks {_some(who)} all stand at {spelled}"
    for dp in range(ranks[0].dp_size):
        who = collecting.get(dp, [])
        if len(who) != 1:
            named = f"ranks {_some(who)}" if who else "none"
            yield f"dp rank {dp} needs exactly one collecting rank (tp 0, cp 0, last stage) and has {named}"
    for (tp, pp), seen in sorted(experts.items()):
        uneven = {
            e: seen.count(e) for e in sorted(set(seen)) if seen.count(e) * ranks[0].ep_size != len(seen)
        }
        if uneven:
            yield f"at tp={tp}, pp={pp} the expert ranks do not occur equally often: {uneven} of {len(seen)}"


def _some(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"
