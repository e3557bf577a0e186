"""Low-rank adapters: a linear layer keeps its frozen weight and learns a small difference beside it."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from roll_strategies.errors import StrategyConfigError
from roll_strategies.settings import ModelSettings
from roll_strategies.weights.plan import Gathered, named_state
from roll_strategies.weights.shards import copy_part

DOWN, UP = "lora_A", "lora_B"
"""Names of the two factors, as peft calls them."""

# r rank of the adapter


class LoraLinear(nn.Linear):
    """A linear layer with an adapter; made from a plain one by `attach`, which keeps its parameters."""

    lora_A: nn.Parameter  # noqa: N815  # the name in files
    """[r, in]."""
    lora_B: nn.Parameter  # noqa: N815  # the name in files
    """[out, r], zero at the start."""
    scale: float
    drop: nn.Dropout

    def forward(self, input: Tensor) -> Tensor:
        """Returns the layer's output plus the adapter's."""
        low = nn.functional.linear(self.drop(input), self.lora_A)
        return super().forward(input) + nn.functional.linear(low, self.lora_B) * self.scale


def attach(model: nn.Module, settings: ModelSettings) -> list[str]:
    """Gives linear layers an adapter, in place, freezes everything else, and returns the layers' names.

    Args:
        model: with or without memory.
        settings: rank, scale, dropout and which layers.

    Raises:
        StrategyConfigError: a name in `lora_target` is no linear layer of the model.
    """
    chosen = _targets(model, settings)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    alpha = settings.lora_alpha if settings.lora_alpha is not None else 2.0 * settings.lora_rank
    for module in chosen.values():
        like = module.weight
        module.__class__ = LoraLinear
        layer = cast("LoraLinear", module)
        for name, shape in (
            (DOWN, (settings.lora_rank, like.shape[1])),
            (UP, (like.shape[0], settings.lora_rank)),
        ):
            factor = torch.empty(shape, dtype=like.dtype, device=like.device)
            layer.register_parameter(name, nn.Parameter(factor))
        layer.scale = alpha / settings.lora_rank
        layer.drop = nn.Dropout(settings.lora_dropout)
    return list(chosen)


def _targets(model: nn.Module, settings: ModelSettings) -> dict[str, nn.Linear]:
    find_head: Any = getattr(model, "get_output_embeddings", lambda: None)  # Any: not declared by nn.Module
    head = find_head()
    linear = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear) and m is not head}
    if not settings.lora_target:
        return linear
    wanted = set(settings.lora_target)
    chosen = {name: module for name, module in linear.items() if name.rpartition(".")[2] in wanted}
    absent = wanted - {name.rpartition(".")[2] for name in chosen}
    if absent:
        present = sorted({name.rpartition(".")[2] for name in linear})
        raise StrategyConfigError(
            f"model_args.lora_target: the model has no linear layer named {sorted(absent)}; it has {present}"
        )
    return chosen


def reset(model: nn.Module, *, seed: int) -> None:
    """Draws the adapters' first weights: the same on every rank, whatever part of them it holds."""
    for name, module in model.named_modules():
        if not isinstance(module, LoraLinear):
            continue
        draws = torch.Generator().manual_seed((seed << 32) ^ zlib.crc32(name.encode()))
        bound = (1.0 / module.in_features) ** 0.5
        down = torch.empty(module.lora_A.shape).uniform_(-bound, bound, generator=draws)
        with torch.no_grad():
            copy_part(module.lora_A, down)
            copy_part(module.lora_B, torch.zeros(module.lora_B.shape))


@dataclass(frozen=True, slots=True)
class MergedWeight:
    """A weight with its adapter added, gathered when it is asked for."""

    weight: Tensor
    down: Tensor
    up: Tensor
    scale: float

    @property
    def shape(self) -> torch.Size:
        """Shape of the weight."""
        return self.weight.shape

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the weight."""
        return self.weight.dtype

    def full_tensor(self) -> Tensor:
        """Returns the sum; a collective when the weight is sharded."""
        weight, down, up = (_full(tensor) for tensor in (self.weight, self.down, self.up))
        return weight + (up @ down) * self.scale


def _full(tensor: Tensor) -> Tensor:
    gather = getattr(tensor, "full_tensor", None)
    return (gather() if callable(gather) else tensor).detach()


def merged_state(model: nn.Module) -> dict[str, Tensor | Gathered]:
    """Returns the model's state under the names of the plain model, adapters added to their weights."""
    state: dict[str, Tensor | Gathered] = {
        name: tensor for name, tensor in named_state(model).items() if not is_adapter(name)
    }
    for name, module in model.named_modules():
        if isinstance(module, LoraLinear):
            merged = MergedWeight(module.weight, module.lora_A, module.lora_B, module.scale)
            state[f"{name}.weight"] = merged
    return state


def is_adapter(name: str) -> bool:
    """Whether a parameter of that name belongs to an adapter."""
    return name.rpartition(".")[2] in (DOWN, UP)


def save_adapter(factors: Mapping[str, Tensor], directory: Path, settings: ModelSettings) -> None:
    """Writes the adapters alone, in the format of peft.

    Args:
        factors: whole adapter parameters by name.
        directory: made if it is not there.
        settings: what `attach` was given.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {f"base_model.model.{name}.weight": tensor.contiguous() for name, tensor in factors.items()}
    save_file(tensors, directory / "adapter_model.safetensors")
    layers = sorted({name.rpartition(".")[0].rpartition(".")[2] for name in factors})
    alpha = settings.lora_alpha if settings.lora_alpha is not None else 2.0 * settings.lora_rank
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": settings.model_name_or_path,
        "r": settings.lora_rank,
        "lora_alpha": alpha,
        "lora_dropout": settings.lora_dropout,
        "target_modules": layers,
        "bias": "none",
    }
    (directory / "adapter_config.json").write_text(json.dumps(config, indent=2))
