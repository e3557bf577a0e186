"""AdamW with a state of 8 bits: it learns as the other does, in less memory, and loses no bit on the way."""

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._inductor import config as inductor
from torch.distributed.tensor import DTensor

from roll_protocol import DataProto, Metric
from roll_strategies import (
    BatchSettings,
    LossSum,
    ModelSettings,
    StateKind,
    StrategyContext,
    StrategyNotInstalled,
    TrainSettings,
    build_strategy,
)
from roll_strategies.fsdp2 import Fsdp2TrainStrategy
from roll_strategies.offload import plain_parts
from roll_strategies.testing import RankFailure, run_ranks, small_llama, whole_state

RATE, STEPS = 1e-3, 8
installed = pytest.mark.skipif(
    importlib.util.find_spec("torchao") is None, reason="torchao is in this package's test group alone"
)


def made(
    directory: str, optimizer: str, *, rank: int = 0, world_size: int = 1, port: int = 0
) -> Fsdp2TrainStrategy:
    inductor.compile_threads = 1  # a pool of processes costs more than it saves for two small kernels
    context = StrategyContext(
        strategy_name="fsdp2_train",
        model_args=ModelSettings(model_name_or_path=directory),
        training_args=TrainSettings(learning_rate=RATE, optimizer=optimizer),
        batching=BatchSettings(train_rows=4),
        rank=rank,
        world_size=world_size,
        master_port=port,
        cluster_name="actor",
    )
    strategy = build_strategy(context)
    assert isinstance(strategy, Fsdp2TrainStrategy)
    strategy.initialize()
    return strategy


def step(strategy: Fsdp2TrainStrategy) -> float:
    """Takes a step on rows that are always the same, and returns the loss before it."""
    ids = torch.randint(1, 128, (4, 16), generator=torch.Generator().manual_seed(5))
    labels = torch.cat([ids[:, 1:], torch.full((4, 1), -100)], 1)
    columns = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    info = strategy.rank_info
    batch = DataProto.from_single_dict(columns).chunk(info.dp_size)[info.dp_rank]

    def loss(data: DataProto, output: Tensor) -> LossSum:
        assert data.batch is not None
        return strategy.op_compute_language_loss(output, data.batch["labels"])

    metric = strategy.train_step(batch, loss)["actor/loss"]
    assert isinstance(metric, Metric)
    return float(metric)


def memory(strategy: Fsdp2TrainStrategy) -> list[Tensor]:
    """The plain tensors that hold this rank's part of the optimizer's state."""
    return [part for t in strategy.tensors_of(StateKind.OPTIMIZER_STATES) for part in plain_parts(t)]


def moments(strategy: Fsdp2TrainStrategy) -> list[Tensor]:
    """The whole moments, as the numbers that they stand for, in the order of the parameters."""
    found = []
    for state in strategy.optimizer.state.values():
        for name in ("exp_avg", "exp_avg_sq"):
            value = state[name]
            whole = value.full_tensor() if isinstance(value, DTensor) else value
            found.append(whole.dequantize() if hasattr(whole, "codes") else whole.clone())
    return found


@dataclass
class Learnt:
    """What one rank saw."""

    plain: list[float]
    """Losses of AdamW."""
    losses: list[float]
    """Losses with 8 bits, one step more than were saved."""
    first: float
    """How far any parameter is from that of AdamW after one step."""
    later: float
    """The same after all steps that are compared."""
    bytes_plain: int
    bytes_8_bit: int
    offloaded: bool
    """Whether every bit of the state left and came back."""
    moments: list[Tensor]
    saved: dict[str, Tensor]
    after: dict[str, Tensor]


def distance(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> float:
    return max(float((right[name] - value).abs().max()) for name, value in left.items())


def learn(rank: int, world_size: int, port: int, directory: str, place: str) -> dict[str, object]:
    """Returns the fields of a `Learnt`: the parent does not know this process's class of that name."""
    plain = made(directory, "adamw", rank=rank, world_size=world_size, port=port)
    strategy = made(directory, "adamw_8bit", rank=rank, world_size=world_size, port=port)
    expected, losses = [step(plain)], [step(strategy)]
    first = distance(whole_state(plain), whole_state(strategy))
    expected += [step(plain) for _ in range(STEPS - 1)]
    losses += [step(strategy) for _ in range(STEPS - 1)]
    saved, held = whole_state(strategy), memory(strategy)
    size, bits = sum(t.nbytes for t in held), [t.clone() for t in held]
    strategy.offload_states(include=["optimizer_states"])
    away = all(t.untyped_storage().nbytes() == 0 for t in held)
    strategy.load_states(include=["optimizer_states"])
    back = all(torch.equal(t, before) for t, before in zip(held, bits, strict=True))
    strategy.save_checkpoint(place, STEPS)
    numbers = moments(strategy)
    losses.append(step(strategy))
    return vars(
        Learnt(
            plain=expected,
            losses=losses,
            first=first,
            later=distance(whole_state(plain), saved),
            bytes_plain=sum(t.nbytes for t in memory(plain)),
            bytes_8_bit=size,
            offloaded=away and back,
            moments=numbers,
            saved=saved,
            after=whole_state(strategy),
        )
    )


def resume(
    rank: int, world_size: int, port: int, directory: str, place: str
) -> tuple[dict[str, Tensor], list[Tensor], float, dict[str, Tensor]]:
    strategy = made(directory, "adamw_8bit", rank=rank, world_size=world_size, port=port)
    strategy.load_checkpoint(place)
    return whole_state(strategy), moments(strategy), step(strategy), whole_state(strategy)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one layer whose matrices have 4096 numbers or more, because torchao leaves fewer as they
    are, and one shape, because it compiles its step for each."""
    place = tmp_path_factory.mktemp("wide")
    model = small_llama(
        vocab_size=128, hidden_size=128, intermediate_size=128, num_hidden_layers=1, num_key_value_heads=4
    )
    model.save_pretrained(place)  # type: ignore[operator]  # a transformers model
    return place


@installed
@pytest.mark.parametrize("world_size", [1, 2])
def test_it_learns_like_adamw_in_a_third_of_the_memory_and_loses_no_bit_on_the_way(
    wide: Path, tmp_path: Path, world_size: int
) -> None:
    place = str(tmp_path / "step")
    learnt = [Learnt(**seen) for seen in run_ranks(learn, world_size, str(wide), place, timeout_s=250)]
    for seen in learnt:
        # A step reads the moments that the one before it rounded: the first one's are not rounded yet.
        assert seen.first < 1e-6 < seen.later
        # Those within a tenth of the largest of their block are rounded to one of 64 (first moment) or 128
        # numbers spread evenly over 0.1 to 1: by 0.9 / 64 / 2 of 0.1, 7 %, at most, and as often up as down.
        # Over the 147,000 of the model that leaves 0.07 / 147_000 ** 0.5 of the fall; 5 times it is 0.001.
        fall = seen.plain[0] - seen.plain[-1]
        assert fall > 1.0
        assert abs(seen.losses[STEPS - 1] - seen.plain[-1]) < 0.001 * fall
        # Instead of two times four bytes: two times one a number, four a block of 256, and a table of 256
        # numbers for every 8192 (two ranks) or more: at most 3.3 of 8 bytes.
        assert seen.bytes_8_bit < 0.33 * seen.bytes_plain
        assert seen.offloaded
    again = run_ranks(resume, world_size, str(wide), place, timeout_s=250)
    for seen, (model, numbers, loss, after) in zip(learnt, again, strict=True):
        assert distance(seen.saved, model) == 0.0
        assert all(torch.equal(*pair) for pair in zip(seen.moments, numbers, strict=True))
        assert loss == seen.losses[-1]
        assert distance(seen.after, after) == 0.0
    if world_size == 2:
        [(model, numbers, _, after)] = run_ranks(resume, 1, str(wide), place, timeout_s=250)
        assert distance(learnt[0].saved, model) == 0.0
        assert all(torch.equal(*pair) for pair in zip(learnt[0].moments, numbers, strict=True))
        assert distance(learnt[0].after, after) < 1e-6


def test_without_torchao_the_extra_to_install_is_named(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao", None)
    monkeypatch.setitem(sys.modules, "torchao.optim", None)
    with pytest.raises(StrategyNotInstalled, match=r"pip install 'roll-strategies\[torchao\]'"):
        made(str(tiny), "adamw_8bit")


def try_8_bits(rank: int, world_size: int, port: int, directory: str) -> None:
    made(directory, "adamw_8bit", rank=rank, world_size=world_size, port=port)


def test_shards_of_unequal_size_are_refused(tiny: Path) -> None:
    with pytest.raises(RankFailure, match=r"q_proj\.weight' has 32 rows for 3 ranks; choose a number"):
        run_ranks(try_8_bits, 3, str(tiny))
