"""Where the positions of padded rows stand in what a model was really fed."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from roll_strategies.ops.sequence import SequenceShard

# b rows   S positions of a padded row   T positions fed   s positions of this rank


class Layout(Protocol):
    """Maps values by row and position to the model's positions on this rank, and back."""

    def local(self, full: Tensor, *, value: float = 0) -> Tensor:
        """Returns the values [b, S, ...] at this rank's positions."""
        ...

    def gather(self, piece: Tensor) -> Tensor:
        """Returns values at this rank's positions as [b, S, ...], 0 where the model was fed nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """Padded rows, cut to the columns that any row uses, and split over ranks where there are several."""

    width: int
    """S."""
    start: int
    """First column fed."""
    stop: int
    """Column after the last one fed."""
    shard: SequenceShard | None = None

    def local(self, full: Tensor, *, value: float = 0) -> Tensor:
        """Returns the values [b, S, ...] at this rank's positions."""
        fed = full[:, self.start : self.stop]
        return fed if self.shard is None else self.shard.local(fed, value=value)

    def gather(self, piece: Tensor) -> Tensor:
        """Returns values at this rank's positions as [b, S, ...], 0 where the model was fed nothing."""
        fed = piece if self.shard is None else self.shard.gather(piece, self.stop - self.start)
        before = fed.new_zeros(len(fed), self.start, *fed.shape[2:])
        after = fed.new_zeros(len(fed), self.width - self.stop, *fed.shape[2:])
        return torch.cat([before, fed, after], dim=1) if self.start or self.stop < self.width else fed


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedLayout:
    """The real tokens of all rows, one after the other in one sequence."""

    rows: int
    """b."""
    width: int
    """S."""
    index: Tensor
    """[T] int64: places in the flattened [b * S]."""
    shard: SequenceShard | None = None

    def local(self, full: Tensor, *, value: float = 0) -> Tensor:
        """Returns the values [b, S, ...] at this rank's positions [1, s, ...]."""
        packed = full.reshape(self.rows * self.width, *full.shape[2:]).index_select(0, self.index)[None]
        return packed if self.shard is None else self.shard.local(packed, value=value)

    def gather(self, piece: Tensor) -> Tensor:
        """Returns values at this rank's positions as [b, S, ...], 0 where the model was fed nothing."""
        packed = piece if self.shard is None else self.shard.gather(piece, len(self.index))
        flat = packed.new_zeros(self.rows * self.width, *packed.shape[2:])
        flat = flat.index_copy(0, self.index, packed[0])
        return flat.reshape(self.rows, self.width, *packed.shape[2:])


def row_layout(attention_mask: Tensor, *, trim: bool, shard: SequenceShard | None) -> RowLayout:
    """Returns the layout of padded rows.

    Args:
        attention_mask: [b, S].
        trim: whether columns that are padding in every row are left out.
        shard: how positions are split over ranks.
    """
    width = attention_mask.shape[1]
    used = attention_mask.bool().any(0).nonzero().flatten().tolist() if trim else []
    start, stop = (used[0], used[-1] + 1) if used else (0, width)
    return RowLayout(width=width, start=start, stop=stop, shard=shard)


def packed_layout(attention_mask: Tensor, *, shard: SequenceShard | None) -> PackedLayout:
    """Returns the layout that leaves all padding out.

    Args:
        attention_mask: [b, S]; padding may stand on either side.
        shard: how positions are split over ranks.
    """
    rows, width = attention_mask.shape
    index = attention_mask.reshape(-1).bool().nonzero().flatten()
    return PackedLayout(rows=rows, width=width, index=index, shard=shard)
