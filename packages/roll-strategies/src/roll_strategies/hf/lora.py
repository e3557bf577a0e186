"""Low-rank adapters by `peft`: the model is frozen, and its linear layers learn a small difference beside.

A value or reward head, which a language model does not have, is learnt whole and belongs to the adapter.
"""

import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from roll_strategies.errors import StrategyConfigError, StrategyNotInstalled, WeightSyncError
from roll_strategies.settings import ModelSettings
from roll_strategies.weights.manifest import Manifest
from roll_strategies.weights.plan import Gathered, named_state
from roll_strategies.weights.shards import copy_part

if TYPE_CHECKING:
    from peft.tuners.lora import LoraLayer
    from peft.utils import ModulesToSaveWrapper

ADAPTER = "default"
"""The adapter's name, as peft calls the only one of a model."""

TASKS = {
    "causal_lm": "CAUSAL_LM",
    "token_classification": "TOKEN_CLS",
    "sequence_classification": "SEQ_CLS",
}
"""What peft calls each `model_type`."""

# r rank of the adapter


def attach(model: nn.Module, settings: ModelSettings) -> None:
    """Gives linear layers an adapter and heads a copy that is trained, in place, and freezes everything else.

    Args:
        model: with or without memory; its layers are wrapped, so parameters of theirs have other names
            afterwards: `plain_name` tells the old ones.
        settings: rank, scale, dropout and which layers.

    Raises:
        StrategyConfigError: a name in `lora_target` is no linear layer, or it is not known which is the head.
        StrategyNotInstalled: peft is missing.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ModuleNotFoundError as missing:
        raise StrategyNotInstalled(
            f"model_args.lora_rank {settings.lora_rank} needs 'peft'; install it with: pip install "
            "'roll-strategies[lora]', or set lora_rank to 0"
        ) from missing
    heads = head_names(model, settings)
    chosen = target_names(model, settings, heads=heads)
    trained = [name for name in heads if not f"{name}.".startswith(settings.freeze_module_prefix)]
    alpha = settings.lora_alpha if settings.lora_alpha is not None else 2.0 * settings.lora_rank
    config = LoraConfig(
        task_type=TASKS[settings.model_type],
        base_model_name_or_path=settings.model_name_or_path,
        r=settings.lora_rank,
        lora_alpha=alpha,  # type: ignore[arg-type]  # peft computes with any number
        lora_dropout=settings.lora_dropout,
        # A short name would also choose a layer of that name in a head.
        target_modules=list(chosen if heads else settings.lora_target or chosen),
        modules_to_save=trained or None,
        bias="none",
    )
    inject_adapter_in_model(config, model)
    for _, layer in adapter_layers(model):
        # peft holds adapters of half-precision layers in float32; here one dtype holds all masters.
        for factor in (layer.lora_A, layer.lora_B):
            factor.to(_base(layer).dtype)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_adapter(name))


def head_names(model: nn.Module, settings: ModelSettings) -> list[str]:
    """Returns the names of the modules beside the body of a value or reward model.

    Args:
        model: without adapters.
        settings: whose head it has.

    Raises:
        StrategyConfigError: the model does not say which of its modules is the body.
    """
    if settings.model_type == "causal_lm":
        return []
    children, body = dict(model.named_children()), getattr(model, "base_model_prefix", None)
    if body not in children:
        raise StrategyConfigError(
            f"model_args.model_type {settings.model_type!r}: {type(model).__name__} does not name its body "
            f"(base_model_prefix is {body!r}, its modules are {sorted(children)}), so its head cannot be "
            "saved with an adapter; name it, or set model_args.lora_rank to 0"
        )
    beside = [name for name in children if name != body]
    return [name for name in beside if next(children[name].parameters(), None) is not None]


def target_names(model: nn.Module, settings: ModelSettings, *, heads: Collection[str] = ()) -> list[str]:
    """Returns the names of the linear layers that get an adapter.

    Args:
        model: without adapters.
        settings: `lora_target` names the last part of each; empty means every linear layer but the head.
        heads: modules that get none.

    Raises:
        StrategyConfigError: there is no such layer.
    """
    find_head: Any = getattr(model, "get_output_embeddings", lambda: None)  # Any: not declared by nn.Module
    head = find_head()
    linear = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head and name.partition(".")[0] not in heads
    ]
    if not settings.lora_target:
        return linear
    wanted = set(settings.lora_target)
    chosen = [name for name in linear if name.rpartition(".")[2] in wanted]
    absent = wanted - {name.rpartition(".")[2] for name in chosen}
    if absent:
        present = sorted({name.rpartition(".")[2] for name in linear})
        raise StrategyConfigError(
            f"model_args.lora_target: the model has no linear layer named {sorted(absent)}; it has {present}"
        )
    return chosen


def is_factor(name: str) -> bool:
    """Whether a parameter of that name is one of the two small matrices beside a layer."""
    return ".lora_A." in name or ".lora_B." in name


def is_head(name: str) -> bool:
    """Whether a parameter of that name belongs to the copy of a head that is trained."""
    return ".modules_to_save." in name


def is_adapter(name: str) -> bool:
    """Whether a parameter of that name belongs to an adapter."""
    return is_factor(name) or is_head(name)


def plain_name(name: str) -> str:
    """Returns the name that a parameter has in the model without adapters.

    Example:
        >>> plain_name("layers.0.q_proj.base_layer.weight")
        'layers.0.q_proj.weight'
    """
    for part in (".base_layer.", ".original_module.", f".modules_to_save.{ADAPTER}."):
        name = name.replace(part, ".")
    return name


def has_adapter(model: nn.Module) -> bool:
    """Whether the model has adapters."""
    return any(is_adapter(name) for name, _ in model.named_parameters())


def adapter_layers(model: nn.Module) -> "Iterator[tuple[str, LoraLayer]]":
    """Yields every layer with an adapter, by name."""
    if not has_adapter(model):
        return
    from peft.tuners.lora import LoraLayer

    for name, module in model.named_modules():
        if isinstance(module, LoraLayer):
            yield name, module


def _heads(model: nn.Module) -> "list[ModulesToSaveWrapper]":
    if not has_adapter(model):
        return []
    from peft.utils import ModulesToSaveWrapper

    return [module for module in model.modules() if isinstance(module, ModulesToSaveWrapper)]


def _base(layer: "LoraLayer") -> Tensor:
    base = layer.get_base_layer()
    assert isinstance(base, nn.Linear), "only linear layers get adapters"
    return base.weight


def _factors(layer: "LoraLayer") -> tuple[Tensor, Tensor]:
    """Returns the weights [r, in] and [out, r] of an adapter."""
    down, up = layer.lora_A[ADAPTER], layer.lora_B[ADAPTER]
    assert isinstance(down, nn.Linear), "only linear layers get adapters"
    assert isinstance(up, nn.Linear), "only linear layers get adapters"
    return down.weight, up.weight


def reset(model: nn.Module, *, seed: int) -> None:
    """Draws the adapters' first weights: the same on every rank, whatever part of them it holds."""
    for name, layer in adapter_layers(model):
        down, up = _factors(layer)
        draws = torch.Generator().manual_seed((seed << 32) ^ zlib.crc32(name.encode()))
        bound = (1.0 / down.shape[1]) ** 0.5
        copy_part(down, torch.empty(down.shape).uniform_(-bound, bound, generator=draws))
        copy_part(up, torch.zeros(up.shape))


@contextmanager
def without_adapter(model: nn.Module) -> Iterator[None]:
    """Makes the model compute what it computed before it had adapters, while the context is open."""
    layers: list[LoraLayer | ModulesToSaveWrapper] = [layer for _, layer in adapter_layers(model)]
    layers += _heads(model)
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def as_asked(model: nn.Module, meta_info: Mapping[str, object]) -> AbstractContextManager[None]:
    """Returns the context in which a batch is scored: without the adapter if `disable_adapter` is true.

    Args:
        model: that scores.
        meta_info: of the batch.

    Raises:
        StrategyConfigError: the model has no adapter that could be left out.
    """
    if not meta_info.get("disable_adapter"):
        return nullcontext()
    if not has_adapter(model):
        raise StrategyConfigError(
            "meta_info['disable_adapter'] asks for the model without its adapter, and it has none; set "
            "model_args.lora_rank, or score the batch with a reference role"
        )
    return without_adapter(model)


@dataclass(frozen=True, slots=True)
class MergedWeight:
    """A weight with its adapter added, gathered when it is asked for."""

    weight: Tensor
    down: Tensor
    """[r, in]."""
    up: Tensor
    """[out, r]."""
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
        """Returns the sum; a collective when the weight is sharded. Its bits are those of peft's merge."""
        weight, down, up = (_full(tensor) for tensor in (self.weight, self.down, self.up))
        if weight.device.type == "cpu" and self.dtype in (torch.bfloat16, torch.float16):
            # As peft does it: products of half-precision numbers are slow on CPUs.
            return weight + ((up.float() @ down.float()) * self.scale).to(self.dtype)
        return weight + (up @ down) * self.scale


def _full(tensor: Tensor) -> Tensor:
    gather = getattr(tensor, "full_tensor", None)
    return (gather() if callable(gather) else tensor).detach()


def merged_state(model: nn.Module) -> dict[str, Tensor | Gathered]:
    """Returns the model's state under the names of the plain model: weights with adapters added, and trained
    heads."""
    held = named_state(model)
    state: dict[str, Tensor | Gathered] = {
        plain_name(name): tensor for name, tensor in held.items() if not is_adapter(name)
    }
    state |= {plain_name(name): tensor for name, tensor in held.items() if is_head(name)}
    for name, layer in adapter_layers(model):
        state[f"{name}.weight"] = MergedWeight(_base(layer), *_factors(layer), layer.scaling[ADAPTER])
    return state


def adapter_state(model: nn.Module) -> dict[str, Tensor]:
    """Returns the parameters of the adapters alone, sharded or not."""
    return {name: tensor for name, tensor in named_state(model).items() if is_adapter(name)}


def require_same_kind(manifest: Manifest, *, adapted: bool) -> None:
    """Refuses an update of whole weights where an adapter is expected, and the other way round.

    Args:
        manifest: of the update.
        adapted: whether the target has an adapter.

    Raises:
        WeightSyncError: the update is of the other kind.
    """
    sent = any(is_adapter(spec.name) for spec in manifest.parameters)
    if sent != adapted:
        what, has = ("an adapter", "has none") if sent else ("whole weights", "takes its adapter alone")
        raise WeightSyncError(
            f"update {manifest.version}: the source sends {what}, and the target {has}; either set "
            "strategy_config.lora_update to 'adapter' at the source and the same model_args.lora_* at both, "
            "or to 'merged' and model_args.lora_rank to 0 at the target"
        )


def save_adapter(model: nn.Module, factors: Mapping[str, Tensor], directory: Path) -> None:
    """Writes the adapters alone, as `PeftModel.from_pretrained` reads them.

    Args:
        model: that has them.
        factors: its whole adapter parameters by name.
        directory: made if it is not there.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"base_model.model.{plain_name(name).replace(f'.{ADAPTER}.', '.')}": tensor.contiguous()
        for name, tensor in factors.items()
    }
    save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})
    configs: Any = model.peft_config  # Any: nn.Module does not declare it
    configs[ADAPTER].save_pretrained(str(directory))
