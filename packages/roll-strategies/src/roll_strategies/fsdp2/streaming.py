"""Loading a sharded model without any rank ever holding the whole of it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from roll_strategies.hf import lora
from roll_strategies.hf.models import auto_class, model_directory, prepare, read_generation_settings
from roll_strategies.settings import ModelSettings
from roll_strategies.weights.plan import named_state
from roll_strategies.weights.shards import shard_bounds


def files_of(directory: Path) -> dict[str, Path] | None:
    """Returns the file of each tensor; None when the weights are not in safetensors."""
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        places = json.loads(index.read_text())["weight_map"]
        return {name: directory / file for name, file in places.items()}
    single = directory / "model.safetensors"
    if not single.is_file():
        return None
    with safe_open(single, framework="pt") as opened:
        return dict.fromkeys(opened.keys(), single)


def empty_model(settings: ModelSettings, *, is_trainable: bool, dtype: torch.dtype) -> nn.Module | None:
    """Returns the model without memory, or None when it cannot be filled tensor by tensor.

    That is so when the files name other tensors than the model has (transformers then converts them while it
    loads), and when the model has buffers that no file holds and that we cannot compute again.
    """
    directory = model_directory(settings)
    files = files_of(directory)
    if files is None:
        return None
    options: dict[str, Any] = dict(settings.model_config_kwargs)  # Any: keyword arguments of transformers
    if settings.model_type != "causal_lm":
        options["num_labels"] = settings.num_labels
    config = transformers.AutoConfig.from_pretrained(str(directory), local_files_only=True, **options)
    with torch.device("meta"):
        model: nn.Module = auto_class(settings).from_config(
            config, dtype=dtype, attn_implementation=settings.attn_implementation
        )
    if not set(files) >= {names[0] for names in tied_names(model)} or not _buffers_can_be_made(model):
        return None
    read_generation_settings(model, directory)
    prepare(model, settings, is_trainable=is_trainable)
    return model


def tied_names(model: nn.Module) -> list[list[str]]:
    """Returns the names of each tensor of the model, one list a tensor."""
    names: dict[int, list[str]] = {}
    for name, tensor in named_state(model).items():
        names.setdefault(id(tensor), []).append(name)
    return list(names.values())


def fill(model: nn.Module, settings: ModelSettings, *, device: torch.device) -> None:
    """Gives a sharded model without memory its memory and its weights, each rank reading its own part.

    Args:
        model: what `empty_model` returned, sharded.
        settings: where the files are.
        device: of the shards.
    """
    files = files_of(model_directory(settings))
    assert files is not None
    ties = tied_names(model)
    model.to_empty(device=device)
    for same in ties:
        _tie(model, same)
    state = named_state(model)
    by_file: dict[Path, list[tuple[str, Tensor]]] = {}
    for same in ties:
        if lora.is_factor(same[0]):
            continue
        held = next(plain for plain in map(lora.plain_name, same) if plain in files)
        by_file.setdefault(files[held], []).append((held, state[same[0]]))
    with torch.no_grad():
        for path, entries in by_file.items():
            with safe_open(path, framework="pt") as opened:
                for name, tensor in entries:
                    _read(opened.get_slice(name), tensor)
        for module in model.modules():
            if _own_buffers(module):
                initialise: Any = model._init_weights  # Any: nn.Module does not declare it
                initialise(module)


def _tie(model: nn.Module, names: list[str]) -> None:
    """Makes every name mean the same parameter again: giving memory to a module gives each name its own."""
    first, *others = names
    for name in others:
        owner, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(owner), attribute, model.get_parameter(first))


def _read(stored: Any, tensor: Tensor) -> None:  # Any: safetensors gives its slices no type
    """Copies this rank's part of a stored tensor."""
    if not isinstance(tensor, DTensor):
        tensor.copy_(stored[:])
        return
    start, stop = shard_bounds(tensor)
    tensor.to_local().copy_(stored[start:stop] if tensor.dim() else stored[:])


def _own_buffers(module: nn.Module) -> Mapping[str, Tensor]:
    """Returns a module's buffers that are never saved."""
    kept = module._non_persistent_buffers_set
    return {name: b for name, b in module.named_buffers(recurse=False) if name in kept}


def _buffers_can_be_made(model: nn.Module) -> bool:
    return all(
        "RotaryEmbedding" in type(module).__name__ for module in model.modules() if _own_buffers(module)
    )
