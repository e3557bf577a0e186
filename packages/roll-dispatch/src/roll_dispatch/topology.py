"""All workers of a role, in an order that keeps the laws."""

from collections.abc import Iterable, Iterator
from typing import Self

from roll_dispatch.axes import ALL_AXES, AXES, axis_size, coordinate, place
from roll_dispatch.errors import TopologyError
from roll_dispatch.laws import violations
from roll_dispatch.layout import Layout, lay_out
from roll_dispatch.rank_info import RankInfo


class Topology:
    """The workers of one role in rank order, with the laws of their coordinates checked once.

    The laws: ranks are 0 to world_size - 1, once each; all tell the same sizes; dp x tp x pp x cp is the
    world size; no two stand at the same (dp, tp, pp, cp); each DP rank has exactly one collecting rank;
    ep divides dp x cp, and at each (tp, pp) every expert rank occurs equally often.

    Args:
        ranks: the coordinates of every worker, in any order.

    Raises:
        TopologyError: naming every broken law at once.
    """

    __slots__ = ("_at", "_layouts", "ranks")

    def __init__(self, ranks: Iterable[RankInfo]) -> None:
        found = tuple(ranks)
        broken = violations(found)
        if broken:
            listed = "\n".join(f"  - {sentence}" for sentence in broken)
            raise TopologyError(
                f"these {len(found)} ranks are no topology:\n{listed}\nCorrect the coordinates that the "
                "workers publish, or build them with Topology.from_sizes."
            )
        self.ranks: tuple[RankInfo, ...] = tuple(sorted(found, key=lambda info: info.rank))
        self._at = {place(info): info.rank for info in self.ranks}
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
            world_size: number of workers; dp is what tp, pp and cp leave of it.
            tp, pp, cp: sizes of these axes.
            ep: size of the expert axis, which divides dp x cp.
            order: every axis once, from the fastest to the slowest. The default is Megatron's; an "ep" in it
                is accepted, as Megatron writes it: after "dp", expert ranks count slowest over dp x cp.

        Returns:
            A topology whose laws hold.

        Raises:
            TopologyError: when the sizes do not fit the world size, or the order does not name the axes.

        Example:
            >>> [info.dp_rank for info in Topology.from_sizes(4, tp=2)]
            [0, 0, 1, 1]
        """
        axes = _axes_of(order)
        model = _checked_model_size(world_size, tp=tp, pp=pp, cp=cp, ep=ep)
        sizes = {"dp": world_size // model, "tp": tp, "pp": pp, "cp": cp}
        shards = sizes["dp"] * cp
        if shards % ep:
            raise TopologyError(
                f"ep {ep} does not divide dp {sizes['dp']} x cp {cp} = {shards}; choose an ep that does"
            )
        slow_experts = "ep" in axes and axes.index("ep") > axes.index("dp")
        moving = [axis for axis in axes if axis != "ep"]
        return cls(_count(world_size, sizes=sizes, ep=ep, axes=moving, slow_experts=slow_experts))

    @classmethod
    def data_parallel(cls, world_size: int) -> Self:
        """Return the topology in which every worker is a DP rank of its own."""
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
    def sizes(self) -> dict[str, int]:
        """Size of every axis by name, ep included."""
        return {axis: axis_size(self.ranks[0], axis) for axis in ALL_AXES}

    @property
    def collecting_ranks(self) -> tuple[int, ...]:
        """The global rank that answers for each DP rank, in DP order."""
        return self.layout("dp").collecting

    def rank_at(self, *, dp: int = 0, tp: int = 0, pp: int = 0, cp: int = 0) -> int:
        """Return the global rank that stands at these coordinates.

        Raises:
            TopologyError: when a coordinate is outside of its axis.
        """
        rank = self._at.get((dp, tp, pp, cp))
        if rank is None:
            raise TopologyError(f"no rank stands at dp={dp}, tp={tp}, pp={pp}, cp={cp} of sizes {self.sizes}")
        return rank

    def layout(self, *axes: str) -> Layout:
        """Return how rows lie over some axes: the part of each rank and the rank that answers for each part.

        Args:
            axes: names of axes, the slowest first: ("dp", "cp") puts the parts of one DP rank side by side.

        Raises:
            TopologyError: for no axis, an unknown or a repeated one, or ep together with dp or cp.
        """
        if axes not in self._layouts:
            self._layouts[axes] = lay_out(self.ranks, axes)
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
        shown = ", ".join(f"{axis}={size}" for axis, size in self.sizes.items() if size > 1)
        return f"<Topology of {self.world_size} rank(s){': ' if shown else ''}{shown}>"

    def __str__(self) -> str:
        """Return a table with a line per rank; `*` marks the ranks that answer for their DP rank."""
        axes = ALL_AXES if self.ep_size > 1 else AXES
        answering = set(self.collecting_ranks)
        head = " rank  " + "  ".join(f"{axis:>3}" for axis in axes) + "  answers"
        rows = (
            f"{info.rank:>5}  "
            + "  ".join(f"{coordinate(info, axis):>3}" for axis in axes)
            + ("  *" if info.rank in answering else "")
            for info in self.ranks
        )
        return "\n".join((repr(self), head, *rows))


def _axes_of(order: str) -> list[str]:
    axes = order.split("-")
    if sorted(axis for axis in axes if axis != "ep") != sorted(AXES) or axes.count("ep") > 1:
        raise TopologyError(
            f"order {order!r} does not name each of {', '.join(AXES)} once; write them from fastest to "
            "slowest, joined by '-', such as 'tp-cp-dp-pp'"
        )
    return axes


def _checked_model_size(world_size: int, **sizes: int) -> int:
    wrong = {name: size for name, size in {"world_size": world_size, **sizes}.items() if size < 1}
    if wrong:
        raise TopologyError(f"sizes are 1 or more, not {wrong}; leave out an axis that is not parallel")
    model = sizes["tp"] * sizes["pp"] * sizes["cp"]
    if world_size % model:
        raise TopologyError(
            f"world_size {world_size} is not a multiple of tp {sizes['tp']} x pp {sizes['pp']} x "
            f"cp {sizes['cp']} = {model}; use a multiple, such as {world_size - world_size % model + model}"
        )
    return model


def _count(
    world_size: int, *, sizes: dict[str, int], ep: int, axes: list[str], slow_experts: bool
) -> Iterator[RankInfo]:
    replicas = sizes["dp"] * sizes["cp"] // ep
    fast, slow = (axis for axis in axes if axis in ("dp", "cp"))  # the two that expert ranks lie over
    for rank in range(world_size):
        at, rest = {}, rank
        for axis in axes:
            rest, at[axis] = divmod(rest, sizes[axis])
        shard = at[fast] + sizes[fast] * at[slow]
        yield RankInfo(
            rank=rank,
            world_size=world_size,
            dp_rank=at["dp"],
            dp_size=sizes["dp"],
            tp_rank=at["tp"],
            tp_size=sizes["tp"],
            pp_rank=at["pp"],
            pp_size=sizes["pp"],
            cp_rank=at["cp"],
            cp_size=sizes["cp"],
            ep_rank=shard // replicas if slow_experts else shard % ep,
            ep_size=ep,
        )
