"""From a whole model to a sharded one, on one page."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)

from roll_strategies.errors import StrategyConfigError
from roll_strategies.fsdp2.groups import Groups
from roll_strategies.fsdp2.options import Fsdp2Options
from roll_strategies.hf.models import torch_dtype


def shard_model(
    model: nn.Module, groups: Groups, options: Fsdp2Options, *, compute_dtype: torch.dtype
) -> nn.Module:
    """Shards a model in place: each layer on its own, then what is left at the root.

    Args:
        model: parameters in the master dtype.
        groups: where it is sharded.
        options: wrap set and policies.
        compute_dtype: dtype of forward and backward.

    Returns:
        The same model; with one rank it stays as it is, unless its dtypes or places differ.
    """
    master = torch_dtype(options.master_dtype, path="strategy_config.master_dtype")
    if groups.mesh.size() == 1 and compute_dtype == master and not options.offload_policy:
        # Nothing to shard and nothing to convert: FSDP would only copy every parameter back and forth.
        return model
    policy = MixedPrecisionPolicy(
        param_dtype=compute_dtype if compute_dtype != master else None,
        reduce_dtype=_reduce_dtype(options, master, compute_dtype),
    )
    offload = OffloadPolicy()
    if options.offload_policy:
        offload = CPUOffloadPolicy(pin_memory=groups.mesh.device_type != "cpu")
    common: dict[str, Any] = {
        "mesh": groups.mesh,
        "mp_policy": policy,
        "offload_policy": offload,
    }  # Any: keywords
    if options.reshard_after_forward is not None:
        common["reshard_after_forward"] = options.reshard_after_forward
    for layer in layers_of(model, options):
        fully_shard(layer, **common)
    fully_shard(model, **common)
    return model


def _reduce_dtype(options: Fsdp2Options, master: torch.dtype, compute: torch.dtype) -> torch.dtype | None:
    wanted = torch_dtype(options.reduce_dtype, path="strategy_config.reduce_dtype")
    # Gradients have the dtype of computation; nothing is gained by reducing float64 ones in less.
    return None if wanted == compute or master == torch.float64 else wanted


def layers_of(model: nn.Module, options: Fsdp2Options) -> list[nn.Module]:
    """Returns the modules that are sharded on their own, outermost only.

    Raises:
        StrategyConfigError: a class in `wrap_classes` does not occur in the model.
    """
    names = set(options.wrap_classes) or set(getattr(model, "_no_split_modules", None) or ())
    found: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in found)
        if type(module).__name__ in names and not inside and module is not model:
            found[name] = module
    absent = set(options.wrap_classes) - {type(module).__name__ for module in found.values()}
    if absent:
        present = sorted({type(module).__name__ for module in model.modules()})
        raise StrategyConfigError(
            f"strategy_config.wrap_classes: the model has no {sorted(absent)}; its module classes are "
            f"{present}"
        )
    return list(found.values())


def reshard(model: nn.Module) -> None:
    """Frees gathered parameters; a forward pass without backward leaves those of the root behind."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def equalise(model: nn.Module, group: dist.ProcessGroup, device: torch.device) -> None:
    """Gives every rank the parameters and buffers of rank 0, before the model is sharded."""
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            moved = tensor.to(device)
            dist.broadcast(moved, src=0, group=group)
            tensor.copy_(moved)
