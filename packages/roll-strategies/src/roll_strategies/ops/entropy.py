"""Entropy of the distribution over the next token."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from roll_strategies.ops.chunks import (
    check_temperature,
    new_gradient,
    row_chunks,
    used_columns,
    working_dtype,
)
from roll_strategies.ops.layout import Layout
from roll_strategies.ops.vocabulary import VocabularyShard

# B rows   S positions   N positions of all rows   V vocabulary


class _Entropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # Any: autograd's context
        logits: Tensor,
        scale: float,
        shard: VocabularyShard | None,
    ) -> Tensor:
        used_NV = used_columns(logits, shard)
        rows, width = used_NV.shape
        entropy_N = logits.new_zeros(rows, dtype=working_dtype(logits))
        lse_N = torch.full_like(entropy_N, float("-inf"))
        for part in row_chunks(rows, width) if width else ():
            z = used_NV[part].to(lse_N.dtype) * scale
            lse = torch.logsumexp(z, dim=-1)
            entropy_N[part] = torch.special.entr(z.sub_(lse[:, None]).exp_()).sum(-1)
            lse_N[part] = lse
        if shard is not None:
            # Entropy of a choice of rank, then of an id of that rank: H = sum of p H(rank) - p log p.
            whole_N = shard.logsumexp(lse_N)
            p_N = (lse_N - whole_N).exp()
            inside_N = torch.where(p_N > 0, p_N * entropy_N, 0.0)
            entropy_N, lse_N = shard.sum(inside_N + torch.special.entr(p_N)), whole_N
        ctx.save_for_backward(logits, lse_N, entropy_N)
        ctx.scale, ctx.shard = scale, shard
        return entropy_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor, None, None]:  # Any: autograd's context
        logits, lse_N, entropy_N = ctx.saved_tensors
        used_NV = used_columns(logits, ctx.shard)
        rows, width = used_NV.shape
        grad, grad_NV = new_gradient(logits, used=width)
        for part in row_chunks(rows, width) if width else ():
            logp = (used_NV[part].to(lse_N.dtype) * ctx.scale).sub_(lse_N[part, None])
            p = logp.exp()
            # A token of probability 0 (logit -inf) contributes 0, not 0 * -inf.
            slope = torch.where(p > 0, logp.add_(entropy_N[part, None]), 0.0)
            grad_NV[part, :width] = p.mul_(slope).mul_(grad_N[part, None]).mul_(-ctx.scale)
        return grad, None, None


def entropy(
    logits: Tensor,
    attention_mask: Tensor,
    *,
    temperature: float = 1.0,
    layout: Layout | None = None,
    vocabulary: VocabularyShard | None = None,
) -> Tensor:
    """Returns the entropy of the distribution over each next token.

    Args:
        logits: [B, S, V], or this rank's positions [B, S_local, V] when the model was fed another layout.
        attention_mask: [B, S]; a position whose next token is masked gives 0.
        temperature: logits are divided by it.
        layout: where the positions stand in what the model was fed; None: as they are.
        vocabulary: how the last dimension of the logits is split over ranks; None: it is whole.

    Returns:
        [B, S-1].
    """
    scale = check_temperature(temperature)
    flat = _Entropy.apply(logits, scale, vocabulary)  # type: ignore[no-untyped-call]  # torch gives apply no types
    assert isinstance(flat, Tensor)
    values = flat.reshape(logits.shape[:-1])
    if layout is not None:
        values = layout.gather(values)
    return torch.where(attention_mask[:, 1:].bool(), values[:, :-1], 0.0)
