"""What a test of a dispatch needs: topologies to run over, and the laws that every mode keeps."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random

from roll_dispatch.call import plan_call
from roll_dispatch.modes import Dispatch
from roll_dispatch.topology import Topology

__all__ = ["all_topologies", "bijections", "check_mode"]


def all_topologies(max_world_size: int, *, order: str = "tp-cp-dp-pp") -> list[Topology]:
    """Return a topology of every shape (dp, tp, pp, cp) with at most so many ranks, the small ones first.

    Args:
        max_world_size: the most ranks.
        order: as in `Topology.from_sizes`.
    """
    return [
        Topology.from_sizes(world, tp=tp, pp=pp, cp=cp, order=order)
        for world in range(1, max_world_size + 1)
        for tp in _divisors(world)
        for pp in _divisors(world // tp)
        for cp in _divisors(world // tp // pp)
    ]


def bijections(topology: Topology, count: int, *, seed: int = 0) -> Iterator[Topology]:
    """Yield topologies with the same coordinates at randomly other ranks.

    Args:
        topology: whose coordinates are handed out.
        count: how many.
        seed: the same seed gives the same ones.
    """
    random = Random(seed)
    for _ in range(count):
        ranks = list(range(topology.world_size))
        random.shuffle(ranks)
        yield Topology(info.replace(rank=rank) for info, rank in zip(topology, ranks, strict=True))


def check_mode(
    mode: Dispatch,
    *,
    topologies: Iterable[Topology],
    rows: Sequence[int] = (0, 1, 2, 3, 7, 16),
    wrap: Callable[[list[int], Topology], object] = lambda numbers, topology: numbers,
) -> None:
    """Assert what a mode that splits rows promises, for workers that return the rows they receive.

    The result is the input; ranks that are not asked to answer cannot change it; and no argument is changed.

    Args:
        mode: the mode.
        topologies: to check it on.
        rows: numbers of rows to check it with.
        wrap: makes the argument of the call from the numbers, for modes that need more than a list.

    Raises:
        AssertionError: saying which topology and how many rows break the promise.
    """
    for topology in topologies:
        for count in rows:
            numbers = list(range(count))
            call = plan_call(mode, topology, (wrap(numbers, topology),))
            where = f"{mode.name} with {count} rows on\n{topology}"
            outputs: dict[int, object] = dict.fromkeys(range(topology.world_size))
            for rank in call.collecting_ranks:
                part = call.parts[rank]
                assert part is not None, f"rank {rank} answers but is not called: {where}"
                outputs[rank] = part[0][0]
            found = call.collect(outputs)
            assert found == numbers, f"the rows sent come back as {found}: {where}"
            assert numbers == list(range(count)), f"the argument was changed: {where}"


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]
