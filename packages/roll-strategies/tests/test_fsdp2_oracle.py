"""Whatever the division into ranks, micro-batches and pieces: the numbers of one plain process."""

from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor

from roll_protocol import DataProto, Metric
from roll_strategies import (
    BatchSettings,
    LossSum,
    ModelSettings,
    StrategyContext,
    TrainSettings,
    TrainStrategy,
    build_strategy,
)
from roll_strategies.testing import run_ranks, whole_state

LENGTHS = [12, 3, 7, 5, 12, 4, 9, 2]
WIDTH = 13


def ragged_rows(*, left: bool = False) -> dict[str, Tensor]:
    draws = torch.Generator().manual_seed(3)
    ids = torch.randint(1, 48, (len(LENGTHS), WIDTH), generator=draws)
    places = torch.arange(WIDTH)[None]
    lengths = torch.tensor(LENGTHS)[:, None]
    mask = (places >= WIDTH - lengths if left else places < lengths).long()
    if left:
        # The same tokens as on the left side, moved.
        ids = torch.stack([row.roll(WIDTH - length) for row, length in zip(ids, LENGTHS, strict=True)])
    ids = ids * mask
    labels = torch.full_like(ids, -100)
    labels[:, :-1] = torch.where((mask[:, 1:] * mask[:, :-1]).bool(), ids[:, 1:], -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def settings(*, steps: int) -> TrainSettings:
    return TrainSettings(
        learning_rate=1e-3,
        weight_decay=0.1,
        max_grad_norm=1.0,
        lr_scheduler_type="linear",
        max_steps=2 * steps,
    )


def plain_run(model_dir: str, steps: int, dtype: torch.dtype) -> tuple[list[float], dict[str, Tensor]]:
    """Trains with nothing of ours: one process, row after row without padding, AdamW."""
    model = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    rows = ragged_rows()
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * (1 - step / (2 * steps))
        parts = []
        for length, ids, labels in zip(LENGTHS, rows["input_ids"], rows["labels"], strict=True):
            logits = model(input_ids=ids[None, :length]).logits[0]
            parts.append(torch.nn.functional.cross_entropy(logits, labels[:length], reduction="sum"))
        loss = torch.stack(parts).sum() / (rows["labels"] != -100).sum()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, {name: value.detach() for name, value in model.state_dict().items()}


Case = tuple[dict[str, object], BatchSettings, bool]
"""Strategy configuration, micro-batches, and whether rows are padded on the left."""
Outcome = tuple[list[float], dict[str, Tensor]]


def our_run(
    rank: int, world_size: int, port: int, model_dir: str, cases: list[Case], steps: int
) -> list[Outcome]:
    return [one_run(rank, world_size, port, model_dir, case, steps) for case in cases]


def one_run(rank: int, world_size: int, port: int, model_dir: str, case: Case, steps: int) -> Outcome:
    config, batching, left = case
    context = StrategyContext(
        strategy_name="fsdp2_train",
        strategy_config=config,
        model_args=ModelSettings(model_name_or_path=model_dir),
        training_args=settings(steps=steps),
        batching=batching,
        rank=rank,
        world_size=world_size,
        master_port=port,
    )
    strategy = build_strategy(context)
    assert isinstance(strategy, TrainStrategy)
    strategy.initialize()
    info = strategy.rank_info
    batch = DataProto.from_single_dict(dict(ragged_rows(left=left))).chunk(info.dp_size)[info.dp_rank]

    def loss(data: DataProto, output: Tensor) -> LossSum:
        assert data.batch is not None
        return strategy.op_compute_language_loss(output, data.batch["labels"])

    losses = []
    for _ in range(steps):
        metric = strategy.train_step(batch, loss)["default/loss"]
        assert isinstance(metric, Metric)
        losses.append(float(metric))
    return losses, whole_state(strategy)


def compare(
    model_dir: Path,
    cases: list[Case],
    *,
    world_size: int,
    dtype: torch.dtype = torch.float32,
    loss_tolerance: float = 1e-6,
    tolerance: float = 2e-5,
) -> None:
    losses, state = plain_run(str(model_dir), 3, dtype)
    for rank, outcomes in enumerate(run_ranks(our_run, world_size, str(model_dir), cases, 3)):
        for case, (ours, theirs) in zip(cases, outcomes, strict=True):
            assert max(abs(a - b) for a, b in zip(ours, losses, strict=True)) < loss_tolerance, (rank, case)
            for name, value in state.items():
                assert (theirs[name] - value).abs().max().item() < tolerance, (rank, case, name)


def divisions() -> list[BatchSettings]:
    return [
        *(BatchSettings(train_rows=rows) for rows in (1, 2, 4)),
        BatchSettings(train_tokens=14),
        BatchSettings(train_tokens=26),
        BatchSettings(train_tokens=16, packing=True),
        BatchSettings(train_rows=4, packing=True),
    ]


@pytest.mark.parametrize("left", [False, True])
def test_two_ranks_equal_one_process_however_rows_are_divided(tiny: Path, left: bool) -> None:
    compare(tiny, [({}, batching, left) for batching in divisions()], world_size=2)


@pytest.mark.parametrize("left", [False, True])
def test_split_sequences_equal_one_process_however_rows_are_divided(tiny: Path, left: bool) -> None:
    compare(tiny, [({"ulysses_size": 2}, batching, left) for batching in divisions()], world_size=2)


def test_replicated_groups_equal_one_process_with_whole_and_split_sequences(tiny: Path) -> None:
    chosen = [
        BatchSettings(train_rows=1),
        BatchSettings(train_tokens=26),
        BatchSettings(train_tokens=16, packing=True),
    ]
    configs: list[dict[str, object]] = [{"fsdp_size": 2}, {"fsdp_size": 2, "ulysses_size": 2}]
    compare(tiny, [(config, batching, False) for config in configs for batching in chosen], world_size=4)


def test_in_float64_the_difference_vanishes(tiny_double: Path) -> None:
    configs: list[dict[str, object]] = [
        {"master_dtype": "float64"},
        {"master_dtype": "float64", "ulysses_size": 2},
    ]
    cases: list[Case] = [
        (config, batching, False)
        for config in configs
        for batching in (BatchSettings(train_rows=2), BatchSettings(train_tokens=16, packing=True))
    ]
    compare(tiny_double, cases, world_size=2, dtype=torch.float64, loss_tolerance=1e-10, tolerance=1e-10)


def test_one_process_equals_a_plain_loop(tiny: Path) -> None:
    compare(tiny, [({}, BatchSettings(train_rows=3), False)], world_size=1)
