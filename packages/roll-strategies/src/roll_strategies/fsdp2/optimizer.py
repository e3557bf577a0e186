"""The optimizer and one step of it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard

from roll_strategies.errors import StrategyConfigError, StrategyNotInstalled
from roll_strategies.schedule import rate_at
from roll_strategies.settings import TrainSettings


def make_optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.Optimizer:
    """Returns the optimizer over the parameters that are trained.

    Raises:
        StrategyConfigError: an unknown optimizer, one that cannot take the shards, or nothing to train.
        StrategyNotInstalled: the 8-bit optimizer without its library.
    """
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    trained = list(named.values())
    if not trained:
        raise StrategyConfigError("no parameter needs gradients; check model_args.freeze_module_prefix")
    options = {
        "lr": settings.learning_rate,
        "betas": (settings.adam_beta1, settings.adam_beta2),
        "eps": settings.adam_epsilon,
        "weight_decay": settings.weight_decay,
    }
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(trained, **options)  # type: ignore[arg-type]  # mixed value types
    if settings.optimizer == "adamw_8bit":
        _require_even_shards(named)
        return _adamw_8bit(trained, options)
    raise StrategyConfigError(
        f"training_args.optimizer must be 'adamw' or 'adamw_8bit', got {settings.optimizer!r}"
    )


def _require_even_shards(named: Mapping[str, nn.Parameter]) -> None:
    # torch takes the step that it compiled for the shard of one rank for that of another, whatever its size.
    for name, parameter in named.items():
        if not isinstance(parameter, DTensor):
            continue
        for ranks, placement in zip(parameter.device_mesh.shape, parameter.placements, strict=True):
            if isinstance(placement, Shard) and parameter.shape[placement.dim] % ranks:
                raise StrategyConfigError(
                    f"training_args.optimizer 'adamw_8bit' needs shards of one size, and {name!r} has "
                    f"{parameter.shape[placement.dim]} rows for {ranks} ranks; choose a number of ranks (or "
                    "strategy_config.fsdp_size) that divides them, or optimizer 'adamw'"
                )


def _adamw_8bit(trained: Sequence[nn.Parameter], options: dict[str, object]) -> torch.optim.Optimizer:
    # Not that of bitsandbytes, which takes no sharded parameters.
    try:
        from torchao.optim import AdamW8bit  # type: ignore[import-not-found]  # optional
    except ModuleNotFoundError as missing:
        raise StrategyNotInstalled(
            "training_args.optimizer 'adamw_8bit' needs 'torchao'; install it with: pip install "
            "'roll-strategies[torchao]'"
        ) from missing
    optimizer: torch.optim.Optimizer = AdamW8bit(trained, **options)
    return optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStep:
    """What one step did."""

    grad_norm: float
    """Norm of the gradient of the global batch, before clipping."""
    learning_rate: float
    skipped: bool
    """Whether the gradient was not finite, so that nothing was changed."""


def take_step(
    optimizer: torch.optim.Optimizer, model: nn.Module, settings: TrainSettings, *, step: int
) -> OptimizerStep:
    """Clips, steps and clears the gradients; a gradient that is not finite changes nothing.

    Args:
        optimizer: over parameters of the model.
        model: gradients are those of the global batch.
        settings: clipping and schedule.
        step: number of the step, from 0.
    """
    rate = rate_at(step, settings)
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)  # compiled optimizers hold it as a tensor
        else:
            group["lr"] = rate
    norm = clip(model.parameters(), settings.max_grad_norm)
    finite = math.isfinite(norm)
    if finite:
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return OptimizerStep(grad_norm=norm, learning_rate=rate, skipped=not finite)


def clip(parameters: Iterable[nn.Parameter], max_norm: float | None) -> float:
    """Scales gradients down to `max_norm` and returns their norm before; None only measures."""
    with_grad = [p for p in parameters if p.grad is not None]
    grads: list[Tensor] = [p.grad for p in with_grad if p.grad is not None]
    total = torch.nn.utils.get_total_norm(grads)
    whole = total.full_tensor() if isinstance(total, DTensor) else total
    if max_norm is not None:
        torch.nn.utils.clip_grads_with_norm_(with_grad, max_norm, total)
    return float(whole)
