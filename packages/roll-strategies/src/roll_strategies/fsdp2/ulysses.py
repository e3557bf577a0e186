"""Attention over a sequence that is split over ranks: heads and positions change places around it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig

from roll_strategies.errors import StrategyConfigError
from roll_strategies.ops.sequence import SequenceShard

# b rows   h heads   s positions of this rank   T positions of all ranks   d width of a head

NAME = "roll_ulysses"
"""Name of this attention among those of transformers."""


@dataclass(slots=True)
class _Whole:
    """What attention has to know about the whole sequence while a rank holds a piece of it."""

    shard: SequenceShard
    allowed: Tensor
    """[b, 1, T, T] bool: which position may look at which."""


_stack: list[_Whole] = []


@contextmanager
def whole_sequence(shard: SequenceShard, segments: Tensor) -> Iterator[None]:
    """Tells attention inside the block which positions belong together.

    Args:
        shard: how positions are split.
        segments: [b, T] int64 over all positions of all ranks; positions of one segment may look back at
            each other, and -1 marks padding.
    """
    length = segments.shape[1]
    same = segments[:, None, :, None] == segments[:, None, None, :]
    real = (segments >= 0)[:, None, None, :]
    causal = torch.ones(length, length, dtype=torch.bool, device=segments.device).tril()
    # Padding looks at itself, so that no row of the softmax is empty.
    itself = torch.eye(length, dtype=torch.bool, device=segments.device)
    _stack.append(_Whole(shard, (same & real & causal) | itself))
    try:
        yield
    finally:
        _stack.pop()


class _Exchange(torch.autograd.Function):
    """Splits one dimension over the ranks and joins another; backward is the same the other way round."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shard: SequenceShard, split: int, join: int) -> Tensor:  # Any: autograd
        ctx.shard, ctx.split, ctx.join = shard, split, join
        sent = torch.stack([part.contiguous() for part in x.chunk(shard.size, split)])
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=shard.group)
        return torch.cat(list(received), join)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # Any: autograd's context
        back: Tensor = _Exchange.apply(grad, ctx.shard, ctx.join, ctx.split)  # type: ignore[no-untyped-call]  # torch gives apply no types
        return back, None, None, None


def _exchange(x: Tensor, shard: SequenceShard, split: int, join: int) -> Tensor:
    out: Tensor = _Exchange.apply(x, shard, split, join)  # type: ignore[no-untyped-call]  # torch gives apply no types
    return out


def ulysses_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """Returns attention [b, s, h, d] of this rank's positions to all positions before them.

    Args:
        module: not used.
        query: [b, h, s, d].
        key: [b, h_kv, s, d].
        value: [b, h_kv, s, d].
        attention_mask: not used: the mask comes from `whole_sequence`.
        scaling: of the scores.
        dropout: of the weights.
        kwargs: what other attentions of transformers take.
    """
    assert _stack, "attention over split sequences runs inside whole_sequence()"
    whole = _stack[-1]
    shard = whole.shard
    copies = max(1, shard.size // key.shape[1])
    if copies > 1:
        key, value = key.repeat_interleave(copies, 1), value.repeat_interleave(copies, 1)
    query, key, value = (_exchange(t, shard, 1, 2) for t in (query, key, value))
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    out = nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=whole.allowed, dropout_p=dropout, scale=scaling
    )
    return _exchange(out, shard, 2, 1).transpose(1, 2).contiguous(), None


def _no_mask(*args: object, **kwargs: object) -> None:
    """Stands where transformers would build a mask for this rank's positions alone."""


def register() -> None:
    """Makes this attention known to transformers under `NAME`."""
    AttentionInterface.register(NAME, ulysses_attention)
    AttentionMaskInterface.register(NAME, _no_mask)


def check_model(config: PreTrainedConfig, size: int) -> None:
    """Refuses models that cannot be split over `size` ranks.

    Raises:
        StrategyConfigError: heads do not divide, or layers look at a window only.
    """
    heads = int(getattr(config, "num_attention_heads", 0))
    kv = int(getattr(config, "num_key_value_heads", None) or heads)
    if not heads or heads % size or (kv % size and size % kv):
        raise StrategyConfigError(
            f"strategy_config.ulysses_size {size} must divide the {heads} attention heads of the model, and "
            "divide or be "
            f"divided by its {kv} key-value heads"
        )
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise StrategyConfigError(
            f"strategy_config.ulysses_size {size} needs full causal attention in every layer; this model "
            f"has {sorted(kinds)}"
        )
