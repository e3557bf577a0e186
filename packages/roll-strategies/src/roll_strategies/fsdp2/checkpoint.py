"""Checkpoints of a sharded training run."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from roll_strategies.commit import finish_staging, read_marker, staging_of, start_staging
from roll_strategies.errors import CheckpointError
from roll_strategies.fsdp2.sharding import reshard
from roll_strategies.hf.lora import adapter_state, merged_state, save_adapter
from roll_strategies.random_state import random_state, set_random_state
from roll_strategies.weights.plan import Gathered

if TYPE_CHECKING:
    from roll_strategies.fsdp2.train import Fsdp2TrainStrategy

FORMAT = 1


def save_training(strategy: "Fsdp2TrainStrategy", save_dir: str, *, global_step: int) -> dict[str, float]:
    """Writes a checkpoint; every rank calls it, on a file system that all ranks share.

    Returns:
        Seconds by phase.
    """
    target, context, group = Path(save_dir).absolute(), strategy.context, strategy.groups.world
    model = strategy.unwrap_model()
    reshard(model)
    started = time.monotonic()
    _together(group, lambda: start_staging(target) if context.rank == 0 else None)
    staging = staging_of(target)
    dcp_save(_state(strategy, with_optimizer=strategy.steps > 0), checkpoint_id=str(staging / "dcp"))
    _together(group, lambda: _save_random_state(staging, context.rank))
    saved = time.monotonic()
    if strategy.options.save_hf_model:
        export(model, staging, tokenizer=strategy.tokenizer, group=group)
        export_adapter(model, staging / "adapter", group=group)
    facts = {
        "format": FORMAT,
        "global_step": global_step,
        "optimizer_steps": strategy.steps,
        "weights_version": strategy.weights_version,
        "world_size": context.world_size,
    }
    _together(group, lambda: finish_staging(target, facts) if context.rank == 0 else None)
    done = time.monotonic()
    return {"save_state_seconds": saved - started, "save_export_seconds": done - saved}


def load_training(strategy: "Fsdp2TrainStrategy", load_dir: str) -> None:
    """Loads a checkpoint; the number of ranks may differ from that of the run that saved it.

    With the same number of ranks the random state of each comes back too; with another one it stays as it is.

    Raises:
        CheckpointError: missing, incomplete, or of another format.
    """
    directory = Path(load_dir).absolute()
    facts = cast("dict[str, Any]", read_marker(directory))  # Any: values of a JSON object
    if facts.get("format") != FORMAT:
        found = facts.get("format")
        raise CheckpointError(f"{load_dir!r} has checkpoint format {found!r}; this version reads {FORMAT}")
    model, optimizer = strategy.unwrap_model(), strategy.optimizer
    reshard(model)
    state = _state(strategy, with_optimizer=facts["optimizer_steps"] > 0)
    dcp_load(state, checkpoint_id=str(directory / "dcp"))
    if "optimizer" in state:
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    else:
        set_model_state_dict(model, state["model"])
        optimizer.state.clear()
    strategy.steps = int(facts["optimizer_steps"])
    strategy.weights_version = int(facts["weights_version"])
    if facts["world_size"] == strategy.context.world_size:
        path = directory / "random" / f"rank_{strategy.context.rank:05d}.pt"
        set_random_state(torch.load(path, weights_only=True))


def _state(strategy: "Fsdp2TrainStrategy", *, with_optimizer: bool) -> dict[str, Any]:  # Any: nested
    model = strategy.unwrap_model()
    if not with_optimizer:
        # Asking for the state of an optimizer that has none would take a step to make one.
        return {"model": get_model_state_dict(model)}
    model_state, optimizer_state = get_state_dict(model, strategy.optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def _save_random_state(staging: Path, rank: int) -> None:
    folder = staging / "random"
    folder.mkdir(exist_ok=True)
    torch.save(random_state(), folder / f"rank_{rank:05d}.pt")


def export(model: nn.Module, directory: Path, *, tokenizer: object | None, group: dist.ProcessGroup) -> None:
    """Writes the model in the Hugging Face format; rank 0 writes, every rank helps to gather.

    The whole model is held on the host of rank 0 while it is written.
    """
    rank = dist.get_rank(group)
    whole: dict[str, Tensor] = {}
    for name, tensor in merged_state(model).items():
        full = tensor.full_tensor() if isinstance(tensor, Gathered) else tensor
        if rank == 0:
            whole[name] = full.detach().cpu()

    def write() -> None:
        if rank == 0:
            saved: Any = model  # Any: nn.Module does not declare save_pretrained
            saved.save_pretrained(str(directory), state_dict=whole)
            keep = getattr(tokenizer, "save_pretrained", None)
            if keep is not None:
                keep(str(directory))

    _together(group, write)


def export_adapter(model: nn.Module, directory: Path, *, group: dist.ProcessGroup) -> None:
    """Writes the adapters alone, where the model has any; rank 0 writes, every rank helps to gather."""
    factors: dict[str, Tensor] = {}
    for name, tensor in adapter_state(model).items():
        full = tensor.full_tensor() if isinstance(tensor, Gathered) else tensor
        factors[name] = full.detach().cpu()

    def write() -> None:
        if factors and dist.get_rank(group) == 0:
            save_adapter(model, factors, directory)

    _together(group, write)


def _together(group: dist.ProcessGroup, act: Any) -> None:  # Any: a callable whose result is not used
    """Runs something on every rank; when it fails on one, it raises on all."""
    problem: str | None = None
    cause: Exception | None = None
    try:
        act()
    except Exception as error:  # noqa: BLE001  # told to all ranks, then raised
        problem, cause = f"rank {dist.get_rank(group)}: {error}", error
    problems: list[str | None] = [None] * dist.get_world_size(group)
    dist.all_gather_object(problems, problem, group=group)
    failed = [entry for entry in problems if entry is not None]
    if failed:
        raise CheckpointError("; ".join(failed)) from cause
