"""Entropy of the distribution over the next token."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from roll_strategies.ops.chunks import check_temperature, row_chunks, working_dtype
from roll_strategies.ops.layout import Layout

# B rows   S positions   N positions of all rows   V vocabulary


class _Entropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, scale: float) -> Tensor:  # Any: autograd's context
        rows, width = logits_NV.shape
        dtype = working_dtype(logits_NV)
        entropy_N = logits_NV.new_empty(rows, dtype=dtype)
        lse_N = logits_NV.new_empty(rows, dtype=dtype)
        for part in row_chunks(rows, width):
            z = logits_NV[part].to(dtype) * scale
            lse = torch.logsumexp(z, dim=-1)
            entropy_N[part] = torch.special.entr(z.sub_(lse[:, None]).exp_()).sum(-1)
            lse_N[part] = lse
        ctx.save_for_backward(logits_NV, lse_N, entropy_N)
        ctx.scale = scale
        return entropy_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor, None]:  # Any: autograd's context
        logits_NV, lse_N, entropy_N = ctx.saved_tensors
        rows, width = logits_NV.shape
        grad_NV = torch.empty_like(logits_NV)
        for part in row_chunks(rows, width):
            logp = (logits_NV[part].to(lse_N.dtype) * ctx.scale).sub_(lse_N[part, None])
            p = logp.exp()
            # A token of probability 0 (logit -inf) contributes 0, not 0 * -inf.
            slope = torch.where(p > 0, logp + entropy_N[part, None], 0.0)
            grad_NV[part] = p.mul_(slope).mul_(grad_N[part, None]).mul_(-ctx.scale)
        return grad_NV, None


def entropy(
    logits: Tensor, attention_mask: Tensor, *, temperature: float = 1.0, layout: Layout | None = None
) -> Tensor:
    """Returns the entropy of the distribution over each next token.

    Args:
        logits: [B, S, V], or this rank's positions [B, S_local, V] when the model was fed another layout.
        attention_mask: [B, S]; a position whose next token is masked gives 0.
        temperature: logits are divided by it.
        layout: where the positions stand in what the model was fed; None: as they are.

    Returns:
        [B, S-1].
    """
    scale = check_temperature(temperature)
    flat = _Entropy.apply(logits.reshape(-1, logits.shape[-1]), scale)  # type: ignore[no-untyped-call]  # torch gives apply no types
    assert isinstance(flat, Tensor)
    values = flat.reshape(logits.shape[:-1])
    if layout is not None:
        values = layout.gather(values)
    return torch.where(attention_mask[:, 1:].bool(), values[:, :-1], 0.0)
