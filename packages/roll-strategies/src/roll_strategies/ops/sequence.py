"""A sequence split over workers into equal contiguous pieces."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

# B rows   S positions   s positions of one rank


class _Gather(torch.autograd.Function):
    """Joins the pieces of all ranks; backward keeps this rank's own piece.

    Every rank computes the same loss from the joined tensor, so its own piece of the gradient is the whole
    of it: the sum of parameter gradients over the ranks is then the gradient of the loss, counted once.
    """

    @staticmethod
    def forward(ctx: Any, piece: Tensor, shard: "SequenceShard") -> Tensor:  # Any: autograd's context
        ctx.shard, ctx.width = shard, piece.shape[1]
        pieces = [torch.empty_like(piece) for _ in range(shard.size)]
        dist.all_gather(pieces, piece.contiguous(), group=shard.group)
        return torch.cat(pieces, dim=1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # Any: autograd's context
        start = ctx.shard.rank * ctx.width
        return grad[:, start : start + ctx.width].contiguous(), None


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceShard:
    """This rank's piece of every sequence."""

    group: dist.ProcessGroup
    rank: int
    size: int

    def padded(self, length: int) -> int:
        """Returns the length after padding to a multiple of the number of pieces."""
        return -(-length // self.size) * self.size

    def local(self, full: Tensor, *, value: float = 0) -> Tensor:
        """Returns this rank's positions of dimension 1, padded on the right with `value`.

        Args:
            full: [B, S, ...].

        Returns:
            [B, s, ...] with s = ceil(S / size).
        """
        length = full.shape[1]
        width = self.padded(length) // self.size
        start = self.rank * width
        piece = full[:, start : min(length, start + width)]
        if piece.shape[1] < width:
            filler = full.new_full((full.shape[0], width - piece.shape[1], *full.shape[2:]), value)
            piece = torch.cat([piece, filler], dim=1)
        return piece

    def gather(self, piece: Tensor, length: int) -> Tensor:
        """Returns all positions [B, length, ...] from every rank's piece; gradients reach this rank's own
        piece."""
        joined = _Gather.apply(piece, self)  # type: ignore[no-untyped-call]  # torch gives apply no types
        assert isinstance(joined, Tensor)
        return joined[:, :length]
