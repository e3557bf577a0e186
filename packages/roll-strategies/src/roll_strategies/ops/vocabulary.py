"""A vocabulary split over workers: each rank holds the logits of its own run of token ids."""

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

# N positions   w ids of one rank   V vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyShard:
    """This rank's run of token ids: rank r holds the logits of `r * width` and the `width - 1` ids after it.

    Every rank of the group computes the same loss from what the operations return, so each one's gradient is
    that of its own logits, whole, and no collective is needed in backward.
    """

    group: dist.ProcessGroup
    rank: int
    size: int
    width: int
    """Ids a rank, the same on all ranks."""
    vocab_size: int
    """Ids of the model; those from here on are filler, which no operation sees."""

    @property
    def start(self) -> int:
        """First id of this rank."""
        return self.rank * self.width

    @property
    def used(self) -> int:
        """How many of this rank's ids are real."""
        return min(self.width, max(0, self.vocab_size - self.start))

    def narrowed(self, vocab_size: int | None) -> Self:
        """Returns the shard of a vocabulary that ends earlier."""
        return self if vocab_size is None else replace(self, vocab_size=min(self.vocab_size, vocab_size))

    def check(self, width: int) -> None:
        """Refuses logits that are not one rank's.

        Raises:
            ValueError: the last dimension is not `width`.
        """
        if width != self.width:
            raise ValueError(
                f"logits split over {self.size} ranks must have {self.width} ids on each, got {width}; pass "
                "this rank's piece, not the gathered logits"
            )

    def here(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Returns where ids stand in this rank's run (0 for those of others), and which are this rank's."""
        local = ids - self.start
        mine = (local >= 0) & (local < self.used)
        return torch.where(mine, local, 0), mine

    def sum(self, values: Tensor) -> Tensor:
        """Returns the sum over ranks; values are not differentiated through it."""
        total = values.contiguous().clone()
        dist.all_reduce(total, group=self.group)
        return total

    def logsumexp(self, local_N: Tensor) -> Tensor:
        """Returns the logarithm of the sum over all ids, from that over each rank's."""
        largest = local_N.clone()
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=self.group)
        # A row without any finite logit stays -inf, as on one rank.
        base = torch.where(largest.isfinite(), largest, 0.0)
        return base + self.sum((local_N - base).exp()).log()

    def sum_of_own(self, values: Tensor) -> Tensor:
        """Returns the sum over ranks; gradients reach this rank's own values as they are."""
        total = _Sum.apply(values, self)  # type: ignore[no-untyped-call]  # torch gives apply no types
        assert isinstance(total, Tensor)
        return total

    def gather(self, piece: Tensor) -> Tensor:
        """Returns every rank's piece side by side in the last dimension; gradients reach this rank's own."""
        joined = _Join.apply(piece, self)  # type: ignore[no-untyped-call]  # torch gives apply no types
        assert isinstance(joined, Tensor)
        return joined


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, shard: VocabularyShard) -> Tensor:  # Any: autograd's context
        return shard.sum(values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # Any: autograd's context
        return grad, None


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, piece: Tensor, shard: VocabularyShard) -> Tensor:  # Any: autograd's context
        ctx.start, ctx.width = shard.rank * piece.shape[-1], piece.shape[-1]
        pieces = [torch.empty_like(piece, memory_format=torch.contiguous_format) for _ in range(shard.size)]
        dist.all_gather(pieces, piece.contiguous(), group=shard.group)
        return torch.cat(pieces, dim=-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # Any: autograd's context
        return grad[..., ctx.start : ctx.start + ctx.width].contiguous(), None
