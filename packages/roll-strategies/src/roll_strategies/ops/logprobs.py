"""Log-probabilities of given tokens."""

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


class _TokenLogProbs(torch.autograd.Function):
    """Log-softmax and gather in one, a chunk of rows at a time; keeps one number a row for backward."""

    @staticmethod
    def forward(
        ctx: Any,  # Any: autograd's context
        logits: Tensor,
        tokens_N: Tensor,
        scale: float,
        shard: VocabularyShard | None,
    ) -> Tensor:
        used_NV = used_columns(logits, shard)
        rows, width = used_NV.shape
        places_N, mine_N = (tokens_N, None) if shard is None else shard.here(tokens_N)
        picked_N = logits.new_zeros(rows, dtype=working_dtype(logits))
        lse_N = torch.full_like(picked_N, float("-inf"))
        for part in row_chunks(rows, width) if width else ():
            z = used_NV[part].to(lse_N.dtype) * scale
            lse_N[part] = torch.logsumexp(z, dim=-1)
            picked_N[part] = z.gather(-1, places_N[part, None]).squeeze(-1)
        if shard is not None:
            assert mine_N is not None
            lse_N = shard.logsumexp(lse_N)
            picked_N = shard.sum(torch.where(mine_N, picked_N, 0.0))
        ctx.save_for_backward(logits, places_N, mine_N, lse_N)
        ctx.scale, ctx.shard = scale, shard
        return picked_N - lse_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor, None, None, None]:  # Any: autograd's context
        logits, places_N, mine_N, lse_N = ctx.saved_tensors
        used_NV = used_columns(logits, ctx.shard)
        rows, width = used_NV.shape
        grad, grad_NV = new_gradient(logits, used=width)
        hit_N = grad_N if mine_N is None else torch.where(mine_N, grad_N, 0.0)
        in_place = logits.dtype == lse_N.dtype
        for part in row_chunks(rows, width) if width else ():
            # The gradient is computed where it will stay; half precision needs a chunk of its own beside it.
            p = grad_NV[part, :width] if in_place else used_NV[part].to(lse_N.dtype)
            torch.mul(used_NV[part] if in_place else p, ctx.scale, out=p)
            p.sub_(lse_N[part, None]).exp_().mul_(-grad_N[part, None])
            p.scatter_add_(-1, places_N[part, None], hit_N[part, None].to(p.dtype)).mul_(ctx.scale)
            if not in_place:
                grad_NV[part, :width] = p
        return grad, None, None, None


def token_log_probs(
    logits: Tensor, tokens: Tensor, *, temperature: float = 1.0, vocabulary: VocabularyShard | None = None
) -> Tensor:
    """Returns the log-probability of each token under its own logits.

    Args:
        logits: [..., V], or this rank's ids [..., w] of a vocabulary that is split over ranks.
        tokens: [...] int64, each in [0, V).
        temperature: logits are divided by it.
        vocabulary: how the vocabulary is split; None: it is whole.

    Returns:
        [...] float32 (float64 for float64 logits).
    """
    scale = check_temperature(temperature)
    flat = _TokenLogProbs.apply(logits, tokens.reshape(-1), scale, vocabulary)  # type: ignore[no-untyped-call]  # torch gives apply no types
    assert isinstance(flat, Tensor)
    return flat.reshape(tokens.shape)


def log_probs(
    logits: Tensor,
    input_ids: Tensor,
    attention_mask: Tensor,
    *,
    temperature: float = 1.0,
    layout: Layout | None = None,
    vocabulary: VocabularyShard | None = None,
) -> Tensor:
    """Returns the log-probability of each next token.

    Args:
        logits: [B, S, V], or this rank's positions [B, S_local, V] when the model was fed another layout.
        input_ids: [B, S].
        attention_mask: [B, S]; a position whose next token is masked gives 0.
        temperature: logits are divided by it.
        layout: where the positions stand in what the model was fed; None: as they are.
        vocabulary: how the last dimension of the logits is split over ranks; None: it is whole.

    Returns:
        [B, S-1]; column t belongs to the token at t+1.
    """
    mask = attention_mask[:, 1:].bool()
    targets = torch.zeros_like(input_ids)
    targets[:, :-1] = torch.where(mask, input_ids[:, 1:], 0)
    if layout is not None:
        targets = layout.local(targets)
    values = token_log_probs(logits, targets, temperature=temperature, vocabulary=vocabulary)
    if layout is not None:
        values = layout.gather(values)
    return torch.where(mask, values[:, :-1], 0.0)
