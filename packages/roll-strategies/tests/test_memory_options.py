"""Options that save memory: each acts, and none changes what is learnt."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from roll_protocol import DataProto, Metric
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
from roll_strategies.testing import run_ranks, whole_state


def made(
    directory: str,
    *,
    rank: int = 0,
    world_size: int = 1,
    port: int = 0,
    config: Mapping[str, object] | None = None,
    dtype: str = "float32",
    **model: bool,
) -> Fsdp2TrainStrategy:
    context = StrategyContext(
        strategy_name="fsdp2_train",
        strategy_config=config or {},
        model_args=ModelSettings(model_name_or_path=directory, dtype=dtype, **model),  # type: ignore[arg-type]  # booleans
        training_args=TrainSettings(learning_rate=1e-3, max_grad_norm=1.0),
        batching=BatchSettings(train_rows=2),
        rank=rank,
        world_size=world_size,
        master_port=port,
        cluster_name="actor",
    )
    strategy = build_strategy(context)
    assert isinstance(strategy, Fsdp2TrainStrategy)
    strategy.initialize()
    return strategy


def rows(count: int) -> DataProto:
    draws = torch.Generator().manual_seed(5)
    ids = torch.randint(1, 48, (count, 9), generator=draws)
    mask = (torch.arange(9)[None] < torch.randint(3, 10, (count, 1), generator=draws)).long()
    labels = torch.where(mask.bool() & mask.roll(-1, 1).bool(), ids.roll(-1, 1), -100)
    labels[:, -1] = -100
    return DataProto.from_single_dict({"input_ids": ids * mask, "attention_mask": mask, "labels": labels})


def train(strategy: Fsdp2TrainStrategy, *, steps: int) -> tuple[list[float], dict[str, Tensor]]:
    def loss(data: DataProto, output: Tensor) -> LossSum:
        assert data.batch is not None
        return strategy.op_compute_language_loss(output, data.batch["labels"])

    losses = []
    batch = rows(6).chunk(strategy.rank_info.dp_size)[strategy.rank_info.dp_rank]
    for _ in range(steps):
        metric = strategy.train_step(batch, loss)["actor/loss"]
        assert isinstance(metric, Metric)
        losses.append(float(metric))
    return losses, whole_state(strategy)


def calls_of(model: nn.Module) -> list[int]:
    """Returns a box that counts how often the first layer starts to compute."""
    calls = [0]

    def count(*arguments: object) -> None:
        calls[0] += 1

    layer = next(module for module in model.modules() if type(module).__name__ == "LlamaMLP")
    layer.register_forward_pre_hook(count)
    return calls


def with_and_without_checkpointing(
    rank: int, world_size: int, port: int, directory: str
) -> list[tuple[int, list[float], dict[str, Tensor]]]:
    found = []
    for pieces in (1, 2):
        for checkpointing in (False, True):
            strategy = made(
                directory,
                rank=rank,
                world_size=world_size,
                port=port,
                config={"ulysses_size": pieces},
                gradient_checkpointing=checkpointing,
            )
            calls = calls_of(strategy.unwrap_model())
            losses, state = train(strategy, steps=2)
            found.append((calls[0], losses, state))
    return found


def test_recomputed_activations_cost_a_second_forward_and_change_no_bit(tiny: Path) -> None:
    for outcomes in run_ranks(with_and_without_checkpointing, 2, str(tiny)):
        for plain, recomputed in (outcomes[:2], outcomes[2:]):
            assert recomputed[0] == 2 * plain[0]
            assert recomputed[1] == plain[1]
            for name, value in plain[2].items():
                assert torch.equal(recomputed[2][name], value), name


def with_and_without_host_shards(
    rank: int, world_size: int, port: int, directory: str
) -> list[tuple[list[float], dict[str, Tensor]]]:
    return [
        train(made(directory, rank=rank, world_size=world_size, port=port, config=config), steps=2)
        for config in ({}, {"offload_policy": True}, {"reshard_after_forward": False})
    ]


def test_shards_on_the_host_and_kept_parameters_change_no_bit(tiny: Path) -> None:
    for plain, *others in run_ranks(with_and_without_host_shards, 2, str(tiny)):
        for losses, state in others:
            assert losses == plain[0]
            for name, value in plain[1].items():
                assert torch.equal(state[name], value), name


def in_half_precision(rank: int, world_size: int, port: int, directory: str) -> list[dict[str, Tensor]]:
    return [
        train(
            made(
                directory,
                rank=rank,
                world_size=world_size,
                port=port,
                dtype="bf16",
                config={"reduce_dtype": kind},
            ),
            steps=1,
        )[1]
        for kind in ("float32", "bfloat16")
    ]


def test_gradients_are_reduced_in_the_dtype_that_is_asked_for(tiny: Path) -> None:
    for exact, rounded in run_ranks(in_half_precision, 2, str(tiny)):
        assert {value.dtype for value in (exact | rounded).values()} == {torch.float32}
        assert any(not torch.equal(rounded[name], value) for name, value in exact.items())
        assert max(float((rounded[name] - value).abs().max()) for name, value in exact.items()) < 3e-3


def test_shards_on_the_host_are_managed_by_fsdp_even_on_one_rank(tiny: Path) -> None:
    assert not isinstance(made(str(tiny)).unwrap_model(), FSDPModule)
    strategy = made(str(tiny), config={"offload_policy": True})
    assert isinstance(strategy.unwrap_model(), FSDPModule)
    assert {parameter.device.type for parameter in strategy.unwrap_model().parameters()} == {"cpu"}


def test_named_classes_are_sharded_alone_and_unknown_ones_are_refused(tiny: Path) -> None:
    strategy = made(str(tiny), config={"offload_policy": True, "wrap_classes": ["LlamaMLP"]})
    wrapped = [type(m).__name__ for m in strategy.unwrap_model().modules() if isinstance(m, FSDPModule)]
    assert wrapped == ["FSDPLlamaForCausalLM", "FSDPLlamaMLP", "FSDPLlamaMLP"]
    with pytest.raises(StrategyConfigError, match=r"the model has no \['Block'\]; its module classes are"):
        made(str(tiny), config={"offload_policy": True, "wrap_classes": ["Block"]})


def test_training_in_fp16_is_refused_because_nothing_scales_its_loss(tiny: Path) -> None:
    with pytest.raises(StrategyConfigError, match="cannot train in fp16, whose gradients overflow"):
        made(str(tiny), dtype="fp16")
