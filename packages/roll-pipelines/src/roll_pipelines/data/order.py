"""Which rows make the batch of a step, out of one source or several with weights."""

from collections.abc import Sequence

import torch
from torch import Tensor

from roll_pipelines.data.supervised import epoch_order

BLOCK = 65_536
"""Draws whose sources are decided together."""


class RowOrder:
    """The rows of every step of a run; they depend on nothing else, so a resumed run draws the same.

    Without weights the sources are one, passed over again and again. With weights, each row of the run
    comes from a source with the probability of its weight; each source is passed over at its own pace,
    every row once before any comes twice.

    Example:
        >>> RowOrder([2, 3], seed=0, weights=[0.0, 1.0], shuffle=False).batch(0, batch_size=4)
        [2, 3, 4, 2]
    """

    def __init__(
        self, sizes: Sequence[int], *, seed: int, weights: Sequence[float] | None = None, shuffle: bool = True
    ) -> None:
        """Keeps the arguments; nothing is drawn yet.

        Args:
            sizes: rows of each source.
            seed: the run's seed.
            weights: how often each source is drawn from, relative to the others; None follows their sizes.
            shuffle: False keeps the order of the rows within each source.

        Raises:
            ValueError: a source has no rows, or weights are not one for each source, negative or all zero.
        """
        if weights is not None:
            check_weights(weights, sources=len(sizes))
        if not sizes or min(sizes) < 1:
            raise ValueError(f"every source of rows needs at least one row, got the sizes {list(sizes)}")
        self._sizes = [sum(sizes)] if weights is None else list(sizes)
        self._weights = torch.tensor([1.0] if weights is None else list(weights), dtype=torch.float64)
        self._seed, self._shuffle = seed, shuffle
        self._before: list[Tensor] = [torch.zeros(len(self._sizes), dtype=torch.int64)]
        self._orders: dict[tuple[int, int], list[int]] = {}

    def batch(self, step: int, *, batch_size: int) -> list[int]:
        """Returns the rows of a step, numbered through all sources one after the other.

        Args:
            step: its number, from 0.
            batch_size: rows of a batch, the same at every step.
        """
        rows: list[int] = []
        place = step * batch_size
        while len(rows) < batch_size:
            block, offset = divmod(place, BLOCK)
            sources = self._sources(block)
            turns = self._count_before(block) + _counts(sources[:offset], len(self._sizes))
            for source in sources[offset : offset + batch_size - len(rows)].tolist():
                rows.append(self._row(source, int(turns[source])))
                turns[source] += 1
            place = step * batch_size + len(rows)
        return rows

    def _sources(self, block: int) -> Tensor:
        if len(self._sizes) == 1:
            return torch.zeros(BLOCK, dtype=torch.int64)
        generator = torch.Generator().manual_seed((self._seed * 1_000_003 + 7_919 + block) % 2**62)
        return torch.multinomial(self._weights, BLOCK, replacement=True, generator=generator)

    def _count_before(self, block: int) -> Tensor:
        while len(self._before) <= block:
            last = _counts(self._sources(len(self._before) - 1), len(self._sizes))
            self._before.append(self._before[-1] + last)
        return self._before[block]

    def _row(self, source: int, turn: int) -> int:
        epoch, place = divmod(turn, self._sizes[source])
        if (source, epoch) not in self._orders:
            self._orders = {key: order for key, order in self._orders.items() if key[0] != source}
            seed = self._seed + source
            order = epoch_order(self._sizes[source], seed=seed, epoch=epoch, shuffle=self._shuffle)
            self._orders[source, epoch] = order
        return sum(self._sizes[:source]) + self._orders[source, epoch][place]


def _counts(sources: Tensor, number: int) -> Tensor:
    return torch.bincount(sources, minlength=number)


def check_weights(weights: Sequence[float], *, sources: int) -> None:
    """Refuses weights that do not belong to the sources.

    Args:
        weights: one for each source.
        sources: how many there are.

    Raises:
        ValueError: their number differs, one is negative, or all are zero.
    """
    if len(weights) != sources or min(weights, default=0.0) < 0 or not sum(weights) > 0:
        raise ValueError(
            f"data_args.file_weights must be {sources} numbers, none negative and not all zero: one for each "
            f"file; got {list(weights)}"
        )
