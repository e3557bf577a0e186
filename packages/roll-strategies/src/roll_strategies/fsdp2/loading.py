"""How a sharded model comes to be, the same on every rank."""

import torch
from torch import nn

from roll_strategies.context import StrategyContext
from roll_strategies.fsdp2 import ulysses
from roll_strategies.fsdp2.groups import Groups
from roll_strategies.fsdp2.options import Fsdp2Options
from roll_strategies.fsdp2.sharding import equalise, shard_model
from roll_strategies.fsdp2.streaming import empty_model, fill
from roll_strategies.hf import lora
from roll_strategies.hf.models import load_model, prepare, torch_dtype
from roll_strategies.interfaces import ModelProvider
from roll_strategies.offload import own_memory
from roll_strategies.ops.sequence import SequenceShard
from roll_strategies.providers import default_model_provider


def build_model(
    context: StrategyContext,
    options: Fsdp2Options,
    groups: Groups,
    *,
    provider: ModelProvider | None,
    tokenizer: object | None,
    trainable: bool,
    compute_dtype: torch.dtype,
) -> nn.Module:
    """Returns the sharded model; its state is the same on every rank.

    Weights in safetensors are read part by part, so that no rank holds the whole model. What a provider makes
    is whole on every rank for a moment, and then that of rank 0 everywhere.

    Args:
        context: which model.
        options: how it is sharded.
        groups: where.
        provider: makes the whole model on the CPU; None (or the default one) loads the directory of
            `model_args`.
        tokenizer: handed to the provider.
        trainable: whether parameters need gradients.
        compute_dtype: dtype of forward and backward.
    """
    settings = context.model
    master = torch_dtype(options.master_dtype, path="strategy_config.master_dtype")
    device = torch.device(context.device_type)
    ours = provider is None or provider is default_model_provider
    model = empty_model(settings, is_trainable=trainable, dtype=master) if ours else None
    if model is not None:
        _adapt(model, context, groups)
        sharded = shard_model(model, groups, options, compute_dtype=compute_dtype)
        fill(model, settings, device=torch.device("cpu") if options.offload_policy else device)
        lora.reset(model, seed=context.seed)
        return sharded
    if ours:
        # Straight into the master dtype: a half-precision stop in between would round float32 weights.
        model = load_model(settings, is_trainable=trainable, dtype=master)
    else:
        assert provider is not None
        model = provider(
            tokenizer=tokenizer,
            model_args=context.model_args,
            training_args=context.training_args,
            is_trainable=trainable,
        )
        prepare(model, settings, is_trainable=trainable)
        model = model.to(master)
    own_memory(model)
    equalise(model, groups.world, device)
    _adapt(model, context, groups)
    model.to(device)
    sharded = shard_model(model, groups, options, compute_dtype=compute_dtype)
    lora.reset(model, seed=context.seed)
    return sharded


def _adapt(model: nn.Module, context: StrategyContext, groups: Groups) -> None:
    """Changes layers before they are sharded: adapters, and attention over split sequences."""
    if context.model.lora_rank > 0:
        lora.attach(model, context.model)
    use_split_attention(model, groups.sequence)


def use_split_attention(model: nn.Module, shard: SequenceShard | None) -> None:
    """Makes every layer attend over sequences that are split over ranks, where they are."""
    if shard is None:
        return
    config = getattr(model, "config", None)
    assert config is not None
    ulysses.check_model(config, shard.size)
    ulysses.register()
    config._attn_implementation = ulysses.NAME
