"""Planning micro-batches under a token budget, equally many on every DP rank."""

import heapq
from collections.abc import Sequence
from itertools import chain
from typing import TypeVar

from roll_dispatch.balance import Division, Method, balance
from roll_dispatch.errors import BalanceError
from roll_dispatch.record import Record

T = TypeVar("T")


class MicroBatchPlan(Record):
    """The micro-batches of every DP rank."""

    groups: tuple[tuple[tuple[int, ...], ...], ...]
    """Places of the rows: by DP rank, by micro-batch. Every DP rank has equally many micro-batches."""
    tokens: tuple[tuple[float, ...], ...]
    """Tokens by DP rank, by micro-batch."""

    @property
    def num_micro_batches(self) -> int:
        """Number of micro-batches of each DP rank."""
        return len(self.groups[0])

    @property
    def order(self) -> tuple[int, ...]:
        """The places of all rows, DP rank after DP rank and micro-batch after micro-batch."""
        return tuple(chain.from_iterable(chain.from_iterable(self.groups)))

    def undo(self, grouped: Sequence[T]) -> list[T]:
        """Return rows that stand in the order of `order` in their first order.

        Raises:
            BalanceError: when there is not one item per row.
        """
        return Division(groups=(self.order,), loads=(0.0,)).undo(grouped)


def plan_micro_batches(
    tokens: Sequence[float],
    *,
    dp_size: int,
    max_tokens: float,
    equal_counts: bool = False,
    multiple_of: int = 1,
    method: Method = "auto",
) -> MicroBatchPlan:
    """Return micro-batches of at most max_tokens each, equally many on every DP rank.

    What is kept: no micro-batch exceeds the budget; rows are divided over DP ranks as `balance` divides
        them; the
    number of micro-batches is the least multiple of `multiple_of` that holds the largest number, over DP
    ranks, that first-fit-decreasing needs, which is at most 11/9 of the least possible one + 2/3. A
    micro-batch is empty only on a DP rank that has fewer rows than micro-batches.

    Args:
        tokens: number of tokens of each row.
        dp_size: number of DP ranks.
        max_tokens: the most tokens that a micro-batch may have.
        equal_counts: whether DP ranks receive equally many rows.
        multiple_of: what the number of micro-batches is a multiple of, as interleaved pipelines need.
        method: as in `balance`.

    Returns:
        The plan; without rows, every DP rank has no micro-batch.

    Raises:
        BalanceError: when a row alone exceeds the budget, naming it, or a size is below 1.

    Example:
        >>> plan_micro_batches([6, 4, 5, 5, 9], dp_size=2, max_tokens=10).num_micro_batches
        2
    """
    if multiple_of < 1:
        raise BalanceError(f"the number of micro-batches is a multiple of 1 or more, not of {multiple_of}")
    over = [f"row {row} has {count}" for row, count in enumerate(tokens) if count > max_tokens]
    if over:
        raise BalanceError(
            f"a micro-batch has at most {max_tokens} tokens, but {', '.join(over[:5])} ({len(over)} in "
            "all); raise max_tokens or shorten these rows"
        )
    ranks = balance(tokens, dp_size, equal_counts=equal_counts, method=method).groups
    filled = [_first_fit(tokens, rows, max_tokens) for rows in ranks]
    count = -(-max(map(len, filled)) // multiple_of) * multiple_of
    groups = tuple(
        _into(tokens, rows, bins, count, max_tokens, method) for rows, bins in zip(ranks, filled, strict=True)
    )
    sums = tuple(tuple(sum(tokens[row] for row in rows) for rows in rank) for rank in groups)
    return MicroBatchPlan(groups=groups, tokens=sums)


def _into(
    tokens: Sequence[float],
    rows: Sequence[int],
    bins: list[list[int]],
    count: int,
    max_tokens: float,
    method: Method,
) -> tuple[tuple[int, ...], ...]:
    """Return the rows of one DP rank in so many micro-batches: evenly where the budget allows it."""
    if not count:
        return ()
    costs = [tokens[row] for row in rows]
    even = balance(costs, count, equal_counts=False, method=method)
    fits = all(load <= max_tokens for load in even.loads)
    filled = min(len(rows), count)
    if fits and sum(bool(group) for group in even.groups) == filled:
        return tuple(tuple(rows[place] for place in group) for group in even.groups)
    return _split_up(tokens, bins, count)


def _first_fit(tokens: Sequence[float], rows: Sequence[int], max_tokens: float) -> list[list[int]]:
    """Return rows packed largest first, each into the first micro-batch that has room."""
    size = 1 << max(0, len(rows) - 1).bit_length()
    bins: list[list[int]] = [[] for _ in range(size)]
    room = [max_tokens] * (2 * size)  # a tree: node n has the most room of nodes 2n and 2n + 1
    for row in sorted(rows, key=lambda row: -tokens[row]):
        node = 1
        while node < size:
            node *= 2
            node += room[node] < tokens[row]
        bins[node - size].append(row)
        room[node] -= tokens[row]
        while node > 1:
            node //= 2
            room[node] = max(room[2 * node], room[2 * node + 1])
    return [rows for rows in bins if rows]


def _split_up(tokens: Sequence[float], bins: list[list[int]], count: int) -> tuple[tuple[int, ...], ...]:
    """Return more micro-batches of the same rows: the ones with most tokens are halved first."""
    heap = [(-sum(tokens[row] for row in rows), number, rows) for number, rows in enumerate(bins)]
    heapq.heapify(heap)
    done: list[list[int]] = []
    number = len(bins)
    while heap and len(heap) + len(done) < count:
        _, _, rows = heapq.heappop(heap)
        if len(rows) == 1:
            done.append(rows)
            continue
        for half in balance([tokens[row] for row in rows], 2).groups:
            kept = [rows[place] for place in half]
            heapq.heappush(heap, (-sum(tokens[row] for row in kept), number, kept))
            number += 1
    groups = sorted(sorted(rows) for rows in [*done, *(rows for _, _, rows in heap)])
    return (*map(tuple, groups), *[()] * (count - len(groups)))
