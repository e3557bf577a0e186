"""Dividing rows by what they cost."""

import heapq
from collections.abc import Callable, Sequence
from itertools import chain
from math import isfinite
from typing import Any, Literal, TypeVar

from roll_dispatch.errors import BalanceError
from roll_dispatch.record import Record

T = TypeVar("T")
Method = Literal["auto", "kk", "greedy"]
Groups = list[list[int]]

_KK_WORK = 200_000
"""Rows x parts up to which "auto" takes the better and slower method."""


class Division(Record):
    """Rows divided into groups."""

    groups: tuple[tuple[int, ...], ...]
    """Places of the rows of each group, ascending."""
    loads: tuple[float, ...]
    """Sum of the costs of each group."""

    @property
    def order(self) -> tuple[int, ...]:
        """The places of all rows, group after group: row `order[k]` stands k-th."""
        return tuple(chain.from_iterable(self.groups))

    @property
    def spread(self) -> float:
        """Largest load less smallest load."""
        return max(self.loads) - min(self.loads)

    def undo(self, grouped: Sequence[T]) -> list[T]:
        """Return rows that stand group after group in their first order.

        Args:
            grouped: one item per row, in the order of `order`.

        Raises:
            BalanceError: when there is not one item per row.

        Example:
            >>> division = balance([1, 9, 1], 2, equal_counts=False)
            >>> division.order, division.undo(["a", "c", "large"])
            ((0, 2, 1), ['a', 'large', 'c'])
        """
        order = self.order
        if len(grouped) != len(order):
            raise BalanceError(f"undo takes one item per row: {len(order)}, not {len(grouped)}")
        first: dict[int, T] = dict(zip(order, grouped, strict=True))
        return [first[row] for row in range(len(order))]


def balance(
    costs: Sequence[float], parts: int, *, equal_counts: bool = True, method: Method = "auto"
) -> Division:
    """Return the rows divided into parts of nearly equal cost.

    What is kept, for m parts, the largest cost c and the best possible largest load OPT:

    - with equal counts, counts differ by at most one, the larger ones first; else counts are free;
    - largest load - smallest load <= c;
    - largest load <= mean load + (1 - 1/m) c, so <= (2 - 1/m) OPT;
    - with free counts, largest load <= (4/3 - 1/(3m)) OPT.

    Args:
        costs: one per row, finite and not negative, such as its number of tokens.
        parts: number of parts.
        equal_counts: whether parts have equally many rows, within one.
        method: "greedy" (largest row first, to the least loaded part; for 100,000 rows), "kk"
            (Karmarkar-Karp differencing, or the greedy result where that is better), or "auto": "kk" while
            rows x parts is small.

    Returns:
        The groups, with their loads and the way back.

    Raises:
        BalanceError: for a cost that is negative or not finite, or fewer than one part.

    Example:
        >>> balance([7, 1, 1, 1, 7, 1], 2).groups
        ((0, 1, 3), (2, 4, 5))
    """
    if parts < 1:
        raise BalanceError(f"rows are divided into 1 or more parts, not {parts}")
    if method not in ("auto", "kk", "greedy"):
        raise BalanceError(f"method is 'auto', 'kk' or 'greedy', not {method!r}")
    wrong = [
        f"row {row} costs {cost}" for row, cost in enumerate(costs) if not (isfinite(cost) and cost >= 0)
    ]
    if wrong:
        raise BalanceError(
            f"a cost is finite and not negative, but {', '.join(wrong[:5])} ({len(wrong)} in all)"
        )
    greedy, differencing = (_greedy_equal, _kk_equal) if equal_counts else (_greedy_free, _kk_free)
    found = [greedy(costs, parts)]
    if method == "kk" or (method == "auto" and len(costs) * parts <= _KK_WORK):
        found.append(differencing(costs, parts))
    groups = min(found, key=lambda groups: max(_loads(costs, groups)))
    groups.sort(key=lambda group: (-len(group) if equal_counts else 0, group[:1] or [len(costs)]))
    return Division(groups=tuple(map(tuple, groups)), loads=tuple(_loads(costs, groups)))


def _loads(costs: Sequence[float], groups: Groups) -> list[float]:
    return [sum(costs[row] for row in group) for group in groups]


def _descending(costs: Sequence[float]) -> list[int]:
    return sorted(range(len(costs)), key=lambda row: -costs[row])


def _greedy_free(costs: Sequence[float], parts: int) -> Groups:
    groups: Groups = [[] for _ in range(parts)]
    least = [(0.0, part) for part in range(parts)]
    for row in _descending(costs):
        load, part = least[0]
        groups[part].append(row)
        heapq.heapreplace(least, (load + costs[row], part))
    return [sorted(group) for group in groups]


def _greedy_equal(costs: Sequence[float], parts: int) -> Groups:
    groups: Groups = [[] for _ in range(parts)]
    loads = [0.0] * parts
    rows = _descending(costs)
    for start in range(0, len(rows), parts):
        by_load = sorted(range(parts), key=loads.__getitem__)
        for row, part in zip(rows[start : start + parts], by_load, strict=False):
            groups[part].append(row)
            loads[part] += costs[row]
    return [sorted(group) for group in groups]


def _kk_free(costs: Sequence[float], parts: int) -> Groups:
    rows = _descending(costs)
    return _difference([[row] for row in rows], costs, parts)


def _kk_equal(costs: Sequence[float], parts: int) -> Groups:
    rows = _descending(costs)
    return _difference([rows[start : start + parts] for start in range(0, len(rows), parts)], costs, parts)


Tree = Any  # Any: a row, None, or a pair of trees; types cannot recurse here
Partial = tuple[float, int, list[tuple[float, Tree]]]
"""Negative spread, a number that breaks ties, and the groups by load, the largest first."""


def _difference(starts: Groups, costs: Sequence[float], parts: int) -> Groups:
    """Merge partial divisions, the two most uneven ones first, each time largest with smallest."""
    heap: list[Partial] = []
    for number, rows in enumerate(starts):
        slots: list[tuple[float, Tree]] = [(costs[row], row) for row in rows]
        slots += [(0.0, None)] * (parts - len(rows))
        heap.append((slots[-1][0] - slots[0][0], number, slots))
    if not heap:
        return [[] for _ in range(parts)]
    heapq.heapify(heap)
    while len(heap) > 1:
        _, number, uneven = heapq.heappop(heap)
        _, _, other = heap[0]
        merged = [
            (load + more, (tree, rest))
            for (load, tree), (more, rest) in zip(uneven, reversed(other), strict=True)
        ]
        merged.sort(key=_load, reverse=True)
        heapq.heapreplace(heap, (merged[-1][0] - merged[0][0], number, merged))
    return [sorted(_rows(tree)) for _, tree in heap[0][2]]


_load: Callable[[tuple[float, Tree]], float] = lambda slot: slot[0]  # noqa: E731  # a key, used in the loop


def _rows(tree: Tree) -> list[int]:
    found, stack = [], [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(node)
        elif node is not None:
            found.append(node)
    return found
