"""Weights of a sharded model, sent to engines that hold whole ones, and the other way round."""

from pathlib import Path

import pytest
import torch

from roll_strategies import (
    BatchSettings,
    Manifest,
    ModelSettings,
    StrategyContext,
    TrainSettings,
    WeightSyncError,
    build_strategy,
)
from roll_strategies.fsdp2 import Fsdp2InferStrategy, Fsdp2TrainStrategy
from roll_strategies.hf import HfInferStrategy
from roll_strategies.testing import DirectTransport, run_ranks
from roll_strategies.weights.collective import BroadcastTransport
from roll_strategies.weights.plan import named_state
from roll_strategies.weights.sender import WeightSender


def target_for(directory: str, rank: int = 0) -> HfInferStrategy:
    context = StrategyContext(
        strategy_name="hf_infer",
        strategy_config={"digest": "full"},
        model_args=ModelSettings(model_name_or_path=directory),
        rank=rank,
        world_size=2,
    )
    strategy = build_strategy(context)
    assert isinstance(strategy, HfInferStrategy)
    strategy.initialize()
    return strategy


def sharded_source(rank: int, world_size: int, port: int, directory: str) -> list[float]:
    """Sends over each transport and compares what arrived; then sends to a target that refuses."""
    reports = []
    for version, way in enumerate(("object_store", "broadcast", "colocated"), start=1):
        context = StrategyContext(
            strategy_name="fsdp2_train",
            strategy_config={"digest": "full", "update_transport": way},
            model_args=ModelSettings(model_name_or_path=directory),
            training_args=TrainSettings(learning_rate=1e-3),
            batching=BatchSettings(),
            update_bucket_bytes=3000,
            update_timeout_s=60,
            rank=rank,
            world_size=world_size,
            master_port=port,
        )
        source = build_strategy(context)
        assert isinstance(source, Fsdp2TrainStrategy)
        source.initialize()
        with torch.no_grad():
            for parameter in source.unwrap_model().parameters():
                parameter.mul_(1.0 + 0.1 * version)
        whole = {n: v.full_tensor() for n, v in named_state(source.unwrap_model()).items()}  # type: ignore[attr-defined]  # sharded
        targets = [target_for(directory, number) for number in range(2)] if rank == 0 else []
        source.setup_model_update("pair", transport=DirectTransport(targets))
        report = source.model_update("pair", version)
        for target in targets:
            assert target.weights_version == version
            theirs = target.unwrap_model().state_dict()
            assert theirs.keys() == whole.keys()
            for name, value in whole.items():
                assert torch.equal(theirs[name], value), (way, name)
        reports.append(report["bytes"])

        class Refusing:
            abort_update = staticmethod(lambda version: version)

            @staticmethod
            def begin_update(manifest: Manifest) -> int:
                raise ValueError("not now")

        source.setup_model_update("refusing", transport=DirectTransport([Refusing()]))
        with pytest.raises(WeightSyncError, match="update 9 failed in begin: not now"):
            source.model_update("refusing", 9)
    return reports


def test_targets_hold_what_a_sharded_source_gathered_over_each_transport(tiny: Path) -> None:
    first, second = run_ranks(sharded_source, 2, str(tiny))
    assert first == second
    assert first[0] > 10_000


def sharded_target(rank: int, world_size: int, port: int, directory: str) -> bool:
    context = StrategyContext(
        strategy_name="fsdp2_infer",
        model_args=ModelSettings(model_name_or_path=directory),
        rank=rank,
        world_size=world_size,
        master_port=port,
    )
    target = build_strategy(context)
    assert isinstance(target, Fsdp2InferStrategy)
    target.initialize()
    draws = torch.Generator().manual_seed(4)
    state = named_state(target.unwrap_model())
    whole = {name: torch.randn(value.shape, generator=draws) for name, value in state.items()}
    # Each rank of a sharded target is told everything and keeps its part.
    WeightSender(transport=DirectTransport([target]), bucket_bytes=3000).send(whole, version=5)
    return all(torch.equal(value.full_tensor(), whole[name]) for name, value in state.items())  # type: ignore[attr-defined]  # sharded


def test_a_sharded_target_keeps_its_part_of_what_was_sent(tiny: Path) -> None:
    assert run_ranks(sharded_target, 2, str(tiny)) == [True, True]


def test_a_broadcast_reaches_every_target_and_can_be_repeated(tiny: Path) -> None:
    targets = [target_for(str(tiny), rank) for rank in range(2)]
    transport = BroadcastTransport(DirectTransport(targets), name="weights", addr="127.0.0.1", timeout_s=60)
    draws = torch.Generator().manual_seed(4)
    for version in (1, 2):
        state = named_state(targets[0].unwrap_model())
        whole = {name: torch.randn(value.shape, generator=draws) for name, value in state.items()}
        WeightSender(transport=transport, bucket_bytes=5000).send(whole, version=version)
        for target in targets:
            theirs = target.unwrap_model().state_dict()
            assert all(torch.equal(theirs[name], value) for name, value in whole.items())
    transport.close()
