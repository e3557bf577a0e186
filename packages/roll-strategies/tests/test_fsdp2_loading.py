"""Where the weights of a sharded model come from, and that they are the same on every rank."""

import gc
import threading
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from roll_strategies import ModelNotFound, ModelSettings, StrategyContext, build_strategy
from roll_strategies.fsdp2 import Fsdp2InferStrategy
from roll_strategies.fsdp2.streaming import files_of
from roll_strategies.memory import give_back
from roll_strategies.testing import run_ranks, small_llama, whole_state


def strategy_for(
    rank: int, world_size: int, port: int, directory: str, **config: object
) -> Fsdp2InferStrategy:
    context = StrategyContext(
        strategy_name="fsdp2_infer",
        strategy_config=config,
        model_args=ModelSettings(model_name_or_path=directory),
        rank=rank,
        world_size=world_size,
        master_port=port,
    )
    strategy = build_strategy(context)
    assert isinstance(strategy, Fsdp2InferStrategy)
    return strategy


def forward(model: nn.Module) -> Tensor:
    ids = torch.arange(1, 9)[None]
    with torch.no_grad():
        logits: Tensor = model(input_ids=ids).logits
    return logits


def streamed(
    rank: int, world_size: int, port: int, directories: list[str]
) -> list[tuple[dict[str, Tensor], Tensor]]:
    found = []
    for directory in directories:
        strategy = strategy_for(rank, world_size, port, directory)
        strategy.initialize()
        found.append((whole_state(strategy), forward(strategy.unwrap_model())))
    return found


def test_every_rank_reads_its_part_of_one_or_many_files_and_ties_stay_tied(
    tiny: Path, tiny_tied: Path, tmp_path: Path
) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny)
    model.save_pretrained(tmp_path / "many", max_shard_size="20KB")
    many = files_of(tmp_path / "many")
    assert many is not None
    assert len(set(many.values())) > 2
    directories = [tiny, tiny_tied, tmp_path / "many"]
    for outcome in run_ranks(streamed, 3, [str(d) for d in directories]):
        for directory, (state, logits) in zip(directories, outcome, strict=True):
            plain = transformers.AutoModelForCausalLM.from_pretrained(directory)
            for name, value in plain.state_dict().items():
                assert torch.equal(state[name], value), name
            torch.testing.assert_close(logits, forward(plain), atol=1e-6, rtol=0)


def private_bytes() -> int:
    """Returns the memory that this process shares with nobody; pages of mapped files are everybody's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024


def grown(rank: int, world_size: int, port: int, directory: str, whole: bool) -> tuple[int, int]:
    """Returns by how many bytes this rank grew at its peak, and how many it holds."""
    strategy = strategy_for(rank, world_size, port, directory)

    def provider(**arguments: object) -> nn.Module:
        model: nn.Module = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
        return model

    loaded = threading.Event()
    gc.collect()
    give_back()  # else the model would first fill what is free already, and that would not count as growth
    before = private_bytes()
    peaks = [before]

    def watch() -> None:
        while not loaded.wait(0.002):
            peaks.append(private_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    strategy.initialize(model_provider=provider if whole else None)
    loaded.set()
    watcher.join()
    parts = [p for p in strategy.unwrap_model().parameters() if isinstance(p, DTensor)]
    return max(peaks) - before, sum(p.to_local().numel() * 4 for p in parts)


def test_no_rank_holds_the_whole_model_while_it_loads(tmp_path: Path) -> None:
    model = small_llama(
        vocab_size=4000, hidden_size=512, intermediate_size=2048, num_hidden_layers=12, num_key_value_heads=4
    )
    model.save_pretrained(tmp_path)  # type: ignore[operator]  # a transformers model
    size = sum(p.numel() * 4 for p in model.parameters())
    del model
    for peak, held in run_ranks(grown, 4, str(tmp_path), False):
        assert 0.24 * size < held < 0.26 * size
        assert held < peak < 0.4 * size, f"{peak / size:.2f} of the model"
    for peak, _ in run_ranks(grown, 2, str(tmp_path), True):
        assert peak > 0.9 * size, (
            f"{peak / size:.2f} of the model: what a provider makes is whole on each rank"
        )


def different(rank: int, world_size: int, port: int, directory: str) -> dict[str, Tensor]:
    def provider(**arguments: object) -> nn.Module:
        assert arguments["is_trainable"] is False
        torch.manual_seed(rank)
        config = transformers.AutoConfig.from_pretrained(directory)
        make = transformers.AutoModelForCausalLM.from_config
        model: nn.Module = make(config)  # type: ignore[no-untyped-call]  # transformers
        return model

    strategy = strategy_for(rank, world_size, port, directory)
    strategy.initialize(model_provider=provider)
    return whole_state(strategy)


def test_a_provider_that_draws_differently_on_each_rank_gives_all_that_of_rank_0(tiny: Path) -> None:
    first, second = run_ranks(different, 2, str(tiny))
    torch.manual_seed(0)
    config = transformers.AutoConfig.from_pretrained(tiny)
    expected = transformers.AutoModelForCausalLM.from_config(config).state_dict()  # type: ignore[no-untyped-call]  # transformers
    for name, value in expected.items():
        assert torch.equal(first[name], value)
        assert torch.equal(second[name], value)


def test_weights_that_are_not_in_safetensors_are_loaded_whole(tiny: Path, tmp_path: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny)
    model.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    assert files_of(tmp_path) is None
    strategy = strategy_for(0, 1, 0, str(tmp_path))
    strategy.initialize()
    for name, value in model.state_dict().items():
        assert torch.equal(whole_state(strategy)[name], value)


def test_a_missing_directory_is_named() -> None:
    with pytest.raises(ModelNotFound, match="no directory '/no/such/place'"):
        strategy_for(0, 1, 0, "/no/such/place").initialize()
