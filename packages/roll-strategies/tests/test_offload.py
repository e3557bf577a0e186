"""Offloading gives memory back to the machine, measured, and brings every byte back."""

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from roll_strategies import (
    ModelSettings,
    StateKind,
    StrategyConfigError,
    StrategyContext,
    TrainSettings,
    build_strategy,
)
from roll_strategies.fsdp2 import Fsdp2TrainStrategy
from roll_strategies.testing import run_ranks, small_llama

MB = 1024 * 1024


def resident() -> int:
    """Returns the bytes of memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def some_model(**arguments: object) -> nn.Module:
    """Returns a model of about 25 MiB in tensors of many sizes."""
    return small_llama(vocab_size=4096, hidden_size=256, intermediate_size=1024, num_hidden_layers=4)


def trained(rank: int, world_size: int, port: int) -> Fsdp2TrainStrategy:
    """Returns a strategy that has parameters, gradients and optimizer states."""
    context = StrategyContext(
        strategy_name="fsdp2_train",
        model_args=ModelSettings(),
        training_args=TrainSettings(learning_rate=1e-3),
        rank=rank,
        world_size=world_size,
        master_port=port,
    )
    strategy = build_strategy(context)
    assert isinstance(strategy, Fsdp2TrainStrategy)
    strategy.initialize(model_provider=some_model)
    for turn in range(2):
        for parameter in strategy.unwrap_model().parameters():
            parameter.grad = torch.full_like(parameter, 0.5 + turn)
        if turn == 0:
            strategy.optimizer.step()
    return strategy


def local(tensor: Tensor) -> Tensor:
    part = getattr(tensor, "_local_tensor", tensor)
    assert isinstance(part, Tensor)
    return part.detach()


def measured(rank: int, world_size: int, port: int) -> dict[str, tuple[int, int, int, bool]]:
    """Returns by kind: bytes of the state, bytes freed, bytes taken back, whether every bit came back."""
    strategy = trained(rank, world_size, port)
    kinds = {
        "model_params": [StateKind.MODEL_PARAMS],
        "gradients": [StateKind.GRADIENTS],
        "optimizer_states": [StateKind.OPTIMIZER_STATES],
        "two of them": [StateKind.MODEL_PARAMS, StateKind.GRADIENTS],
        "all": [StateKind.MODEL_PARAMS, StateKind.GRADIENTS, StateKind.OPTIMIZER_STATES],
    }
    found = {}
    for name, held in kinds.items():
        tensors = [local(tensor) for kind in held for tensor in strategy.tensors_of(kind)]
        sums = [tensor.double().sum().item() for tensor in tensors]
        size = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
        include = None if name == "all" else [kind.value for kind in held]
        before = resident()
        strategy.offload_states(include=include)
        away = resident()
        empty = all(tensor.untyped_storage().nbytes() == 0 for tensor in tensors)
        strategy.load_states(include=include)
        back = resident()
        same = sums == [tensor.double().sum().item() for tensor in tensors]
        found[name] = size, before - away, back - away, empty and same
    return found


def test_each_kind_of_state_gives_its_memory_back_and_takes_it_again() -> None:
    for found in run_ranks(measured, 2):
        assert found["gradients"][0] > 10 * MB
        assert found["optimizer_states"][0] > 1.9 * found["gradients"][0]
        for name, (size, freed, taken, whole) in found.items():
            assert whole, name
            assert freed > 0.9 * size, f"{name}: {freed / MB:.1f} of {size / MB:.1f} MiB were given back"
            assert taken > 0.9 * size, f"{name}: {taken / MB:.1f} of {size / MB:.1f} MiB came again"


def test_a_state_that_does_not_exist_is_named() -> None:
    strategy = build_strategy(StrategyContext(strategy_name="mock_train"))
    strategy.initialize()
    with pytest.raises(StrategyConfigError, match="no state is called 'weights'; include may hold"):
        strategy.offload_states(include=["weights"])
