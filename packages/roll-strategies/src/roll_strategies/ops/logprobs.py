"""Log-probabilities of given tokens."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from roll_strategies.ops.chunks import check_temperature, row_chunks, working_dtype
from roll_strategies.ops.layout import Layout

# B rows   S positions   N positions of all rows   V vocabulary


class _TokenLogProbs(torch.autograd.Function):
    """Log-softmax and gather in one, a chunk of rows at a time; keeps one number a row for backward."""

    @staticmethod
    def forward(
        ctx: Any, logits_NV: Tensor, tokens_N: Tensor, scale: float
    ) -> Tensor:  # Any: autograd's context
        rows, width = logits_NV.shape
        dtype = working_dtype(logits_NV)
        logp_N = logits_NV.new_empty(rows, dtype=dtype)
        lse_N = logits_NV.new_empty(rows, dtype=dtype)
        for part in row_chunks(rows, width):
            z = logits_NV[part].to(dtype) * scale
            lse = torch.logsumexp(z, dim=-1)
            logp_N[part] = z.gather(-1, tokens_N[part, None]).squeeze(-1) - lse
            lse_N[part] = lse
        ctx.save_for_backward(logits_NV, tokens_N, lse_N)
        ctx.scale = scale
        return logp_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor, None, None]:  # Any: autograd's context
        logits_NV, tokens_N, lse_N = ctx.saved_tensors
        rows, width = logits_NV.shape
        grad_NV = torch.empty_like(logits_NV)
        for part in row_chunks(rows, width):
            g = grad_N[part, None]
            p = (logits_NV[part].to(lse_N.dtype) * ctx.scale).sub_(lse_N[part, None]).exp_()
            p.mul_(-g).scatter_add_(-1, tokens_N[part, None], g.to(p.dtype))
            grad_NV[part] = p.mul_(ctx.scale)
        return grad_NV, None, None


def token_log_probs(logits: Tensor, tokens: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Returns the log-probability of each token under its own logits.

    Args:
        logits: [..., V].
        tokens: [...] int64, each in [0, V).
        temperature: logits are divided by it.

    Returns:
        [...] float32 (float64 for float64 logits).
    """
    scale = check_temperature(temperature)
    flat = _TokenLogProbs.apply(logits.reshape(-1, logits.shape[-1]), tokens.reshape(-1), scale)  # type: ignore[no-untyped-call]  # torch gives apply no types
    assert isinstance(flat, Tensor)
    return flat.reshape(tokens.shape)


def log_probs(
    logits: Tensor,
    input_ids: Tensor,
    attention_mask: Tensor,
    *,
    temperature: float = 1.0,
    layout: Layout | None = None,
) -> Tensor:
    """Returns the log-probability of each next token.

    Args:
        logits: [B, S, V], or this rank's positions [B, S_local, V] when the model was fed another layout.
        input_ids: [B, S].
        attention_mask: [B, S]; a position whose next token is masked gives 0.
        temperature: logits are divided by it.
        layout: where the positions stand in what the model was fed; None: as they are.

    Returns:
        [B, S-1]; column t belongs to the token at t+1.
    """
    mask = attention_mask[:, 1:].bool()
    targets = torch.zeros_like(input_ids)
    targets[:, :-1] = torch.where(mask, input_ids[:, 1:], 0)
    if layout is not None:
        targets = layout.local(targets)
    values = token_log_probs(logits, targets, temperature=temperature)
    if layout is not None:
        values = layout.gather(values)
    return torch.where(mask, values[:, :-1], 0.0)
