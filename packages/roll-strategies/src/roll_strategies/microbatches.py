"""How rows become micro-batches: one pure planner for every engine."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from roll_strategies.errors import MicroBatchError


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """Groups of row numbers; together they hold every row once. A group may be empty.

    Example:
        >>> plan = plan_micro_batches([3, 1, 2], rows=2)
        >>> plan.groups, plan.order, plan.inverse
        (((0, 1), (2,)), (0, 1, 2), (0, 1, 2))
    """

    units: tuple[tuple[int, ...], ...]
    """Groups of units; a unit is `together` consecutive rows."""
    together: int = 1

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Row numbers of each micro-batch."""
        if self.together == 1:
            return self.units
        size = self.together
        return tuple(
            tuple(row for unit in group for row in range(unit * size, (unit + 1) * size))
            for group in self.units
        )

    @property
    def order(self) -> tuple[int, ...]:
        """Row numbers in the order in which they are worked on."""
        return tuple(row for group in self.groups for row in group)

    @property
    def inverse(self) -> tuple[int, ...]:
        """Where each row stands in `order`; picking results by it restores the input order."""
        positions = [0] * len(self.order)
        for position, row in enumerate(self.order):
            positions[row] = position
        return tuple(positions)

    def with_count(self, count: int) -> "MicroBatches":
        """Returns the same rows in exactly `count` groups, so that all ranks run equally many.

        The largest groups are halved first; when every group holds one row, empty groups are added.

        Raises:
            MicroBatchError: there are more groups already.
        """
        groups = list(self.units)
        if count < len(groups):
            raise MicroBatchError(
                f"cannot put {len(groups)} micro-batches into {count}; groups are never joined"
            )
        while len(groups) < count:
            widest = max(range(len(groups)), key=lambda index: len(groups[index]), default=None)
            if widest is None or len(groups[widest]) < 2:
                groups.extend([()] * (count - len(groups)))
                break
            rows = groups[widest]
            middle = (len(rows) + 1) // 2
            groups[widest : widest + 1] = [rows[:middle], rows[middle:]]
        return MicroBatches(tuple(groups), self.together)


def plan_micro_batches(
    lengths: Sequence[int],
    *,
    rows: int | None = None,
    tokens: int | None = None,
    packed: bool = False,
    together: int = 1,
    multiple_of: int = 1,
) -> MicroBatches:
    """Returns micro-batches that keep within the given limits.

    Args:
        lengths: tokens of each row.
        rows: largest number of rows in a micro-batch; used when `tokens` is None.
        tokens: largest number of tokens in a micro-batch: the sum of its rows' lengths when packed, else its
            number of rows times the longest of them.
        packed: whether rows are joined without padding.
        together: so many consecutive rows belong together (2 for pairs) and are never parted.
        multiple_of: the number of micro-batches is a multiple of it (empty ones are added), for pipeline
            stages.

    Returns:
        Rows in input order when planned by rows, by falling length when planned by tokens.

    Raises:
        MicroBatchError: a row, or rows that belong together, exceed the token limit, a limit is not positive,
            or rows do not come in whole groups.
    """
    if together > 1:
        return _of_units(lengths, together, rows=rows, tokens=tokens, packed=packed, multiple_of=multiple_of)
    if tokens is None:
        if rows is None or rows < 1:
            raise MicroBatchError(f"rows in a micro-batch must be at least 1, got {rows}")
        plan = MicroBatches(_by_rows(len(lengths), rows))
    else:
        _check_tokens(lengths, tokens)
        plan = MicroBatches(_first_fit(lengths, tokens) if packed else _by_padded_tokens(lengths, tokens))
    count = -(-len(plan.groups) // multiple_of) * multiple_of
    return plan.with_count(count)


def _of_units(
    lengths: Sequence[int],
    together: int,
    *,
    rows: int | None,
    tokens: int | None,
    packed: bool,
    multiple_of: int,
) -> MicroBatches:
    """Plans groups of rows as if each were one row, and puts their rows in their places."""
    if len(lengths) % together:
        raise MicroBatchError(f"{len(lengths)} rows do not come in groups of {together}; send whole groups")
    if tokens is None and rows is not None and rows < together:
        raise MicroBatchError(
            f"a micro-batch of {rows} rows cannot hold {together} rows that belong together; raise its size"
        )
    units = [lengths[start : start + together] for start in range(0, len(lengths), together)]
    costs = [sum(unit) if packed else together * max(unit) for unit in units]
    if tokens is not None:
        _check_tokens(costs, tokens, together=together)
    limit = None if rows is None else rows // together
    plan = plan_micro_batches(costs, rows=limit, tokens=tokens, packed=packed, multiple_of=multiple_of)
    return MicroBatches(plan.groups, together)


def _check_tokens(costs: Sequence[int], tokens: int, *, together: int = 1) -> None:
    """Refuses a unit of `together` rows that takes more tokens than a micro-batch may hold."""
    if tokens < 1:
        raise MicroBatchError(f"tokens in a micro-batch must be at least 1, got {tokens}")
    largest = max(costs, default=0)
    if largest > tokens:
        unit = list(costs).index(largest)
        what = f"row {unit} has {largest} tokens"
        if together > 1:
            first, last = unit * together, unit * together + together - 1
            what = f"rows {first} to {last} belong together and take {largest} tokens"
        raise MicroBatchError(
            f"{what}, more than the {tokens} that one micro-batch may hold; raise "
            f"max_tokens_per_microbatch to at least {largest} or shorten the sequences"
        )


def _by_rows(count: int, rows: int) -> tuple[tuple[int, ...], ...]:
    groups = -(-count // rows)
    if groups == 0:
        return ()
    small, extra = divmod(count, groups)
    bounds = [index * small + min(index, extra) for index in range(groups + 1)]
    return tuple(tuple(range(start, end)) for start, end in itertools.pairwise(bounds))


def _by_padded_tokens(lengths: Sequence[int], tokens: int) -> tuple[tuple[int, ...], ...]:
    groups: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        # Rows come by falling length, so the first of a group is its longest.
        if groups and lengths[groups[-1][0]] * (len(groups[-1]) + 1) <= tokens:
            groups[-1].append(row)
        else:
            groups.append([row])
    return tuple(tuple(group) for group in groups)


def _first_fit(lengths: Sequence[int], tokens: int) -> tuple[tuple[int, ...], ...]:
    groups: list[list[int]] = []
    free: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        for index, left in enumerate(free):
            if lengths[row] <= left:
                groups[index].append(row)
                free[index] -= lengths[row]
                break
        else:
            groups.append([row])
            free.append(tokens - lengths[row])
    return tuple(tuple(group) for group in groups)
