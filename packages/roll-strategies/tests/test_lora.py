"""Adapters: only they learn, targets receive the sum, and a checkpoint holds both forms."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor

from roll_protocol import DataProto
from roll_strategies import (
    BatchSettings,
    LossSum,
    ModelSettings,
    StrategyConfigError,
    StrategyContext,
    TrainSettings,
    build_strategy,
)
from roll_strategies.fsdp2 import Fsdp2TrainStrategy
from roll_strategies.hf import HfInferStrategy
from roll_strategies.hf.lora import is_adapter
from roll_strategies.testing import DirectTransport, run_ranks, whole_state

RANK = 3
LAYERS = ("q_proj", "down_proj")


def lora_strategy(
    directory: str, *, rank: int = 0, world_size: int = 1, port: int = 0, target: tuple[str, ...] = LAYERS
) -> Fsdp2TrainStrategy:
    context = StrategyContext(
        strategy_name="fsdp2_train",
        model_args=ModelSettings(
            model_name_or_path=directory, lora_rank=RANK, lora_alpha=6.0, lora_target=target
        ),
        training_args=TrainSettings(learning_rate=1e-2),
        batching=BatchSettings(train_rows=2),
        update_bucket_bytes=4000,
        rank=rank,
        world_size=world_size,
        master_port=port,
    )
    strategy = build_strategy(context)
    assert isinstance(strategy, Fsdp2TrainStrategy)
    strategy.initialize()
    return strategy


def step(strategy: Fsdp2TrainStrategy) -> None:
    info = strategy.rank_info
    ids = torch.randint(1, 48, (4, 7), generator=torch.Generator().manual_seed(1))
    labels = torch.cat([ids[:, 1:], torch.full((4, 1), -100)], 1)
    columns = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    batch = DataProto.from_single_dict(columns).chunk(info.dp_size)[info.dp_rank]

    def loss(data: DataProto, output: Tensor) -> LossSum:
        assert data.batch is not None
        return strategy.op_compute_language_loss(output, data.batch["labels"])

    strategy.train_step(batch, loss)


def expected_sum(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The plain model's weights, worked out from the formula of adapters."""
    plain = {name: value for name, value in state.items() if not is_adapter(name)}
    for name in plain:
        layer = name.removesuffix(".weight")
        if f"{layer}.lora_A" in state:
            plain[name] = plain[name] + (state[f"{layer}.lora_B"] @ state[f"{layer}.lora_A"]) * (6.0 / RANK)
    return plain


def train_and_send(rank: int, world_size: int, port: int, directory: str, place: str) -> dict[str, Tensor]:
    strategy = lora_strategy(directory, rank=rank, world_size=world_size, port=port)
    before = whole_state(strategy)
    assert all(not value.any() for name, value in before.items() if name.endswith("lora_B"))
    step(strategy)
    step(strategy)
    after = whole_state(strategy)
    for name, value in before.items():
        assert torch.equal(after[name], value) != is_adapter(name), name
    targets = []
    if rank == 0:
        context = StrategyContext(
            strategy_name="hf_infer", model_args=ModelSettings(model_name_or_path=directory)
        )
        target = build_strategy(context)
        assert isinstance(target, HfInferStrategy)
        target.initialize()
        targets = [target]
    strategy.setup_model_update("pair", transport=DirectTransport(targets))
    strategy.model_update("pair", 1)
    for target in targets:
        theirs = target.unwrap_model().state_dict()
        for name, value in expected_sum(after).items():
            assert torch.equal(theirs[name], value), name
    strategy.save_checkpoint(place, 2)
    return after


def resume(rank: int, world_size: int, port: int, directory: str, place: str) -> dict[str, Tensor]:
    strategy = lora_strategy(directory, rank=rank, world_size=world_size, port=port)
    strategy.load_checkpoint(place)
    return whole_state(strategy)


def test_adapters_learn_alone_and_reach_targets_and_checkpoints_as_a_sum(tiny: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "step")
    first, second = run_ranks(train_and_send, 2, str(tiny), place)
    for name, value in first.items():
        assert torch.equal(second[name], value)
    exported = transformers.AutoModelForCausalLM.from_pretrained(place).state_dict()
    for name, value in expected_sum(first).items():
        assert torch.equal(exported[name], value), name
    adapter = load_file(tmp_path / "step" / "adapter" / "adapter_model.safetensors")
    assert len(adapter) == 2 * 2 * len(LAYERS)
    name = "model.layers.1.mlp.down_proj.lora_B"
    assert torch.equal(adapter[f"base_model.model.{name}.weight"], first[name])
    config = json.loads((tmp_path / "step" / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (3, 6.0, sorted(LAYERS))
    for state in run_ranks(resume, 2, str(tiny), place):
        for name, value in first.items():
            assert torch.equal(state[name], value), name


def test_a_layer_that_is_not_there_is_named(tiny: Path) -> None:
    with pytest.raises(StrategyConfigError, match=r"no linear layer named \['w1'\]; it has \['down_proj'"):
        lora_strategy(str(tiny), target=("q_proj", "w1"))
    with pytest.raises(StrategyConfigError, match="'hf_infer' of 'default' cannot do lora"):
        build_strategy(StrategyContext(strategy_name="hf_infer", model_args=ModelSettings(lora_rank=4)))


def test_every_linear_layer_but_the_head_gets_an_adapter_by_default(tiny: Path) -> None:
    strategy = lora_strategy(str(tiny), target=())
    layers = {name.rpartition(".")[0] for name in whole_state(strategy) if is_adapter(name)}
    assert len(layers) == 2 * 7
    assert "lm_head" not in layers
