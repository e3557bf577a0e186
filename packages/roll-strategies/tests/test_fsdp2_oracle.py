"""Whatever the division into ranks, micro-batches and pieces: the numbers of one plain process."""

from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor

from roll_protocol import DataProto
from roll_strategies import (
    BatchSettings,
    LossSum,
    ModelSettings,
    StrategyContext,
    TrainSettings,
    TrainStrategy,
    build_strategy,
)
from roll_strategies.testing import run_ranks

LENGTHS = [12, 3, 7, 5, 12, 4, 9, 2]
WIDTH = 13


def ragged_rows(*, left: bool = False) -> dict[str, Tensor]:
    draws = torch.Generator().manual_seed(3)
    ids = torch.randint(1, 48, (len(LENGTHS), WIDTH), generator=draws)
    places = torch.arange(WIDTH)[None]
    lengths = torch.tensor(LENGTHS)[:, None]
    mask = (places >= WIDTH - lengths if left else places < lengths).long()
    ids = ids * mask
    labels = torch.full_like(ids, -100)
    labels[:, :-1] = torch.where((mask[:, 1:] * mask[:, :-1]).bool(), ids[:, 1:], -100)
    # Half of the tokens are the answer.
    response = mask * (places % 2)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels, "response_mask": response}


def settings(*, steps: int) -> TrainSettings:
    return TrainSettings(
        learning_rate=1e-2,
        weight_decay=0.1,
        max_grad_norm=1.0,
        lr_scheduler_type="linear",
        max_steps=2 * steps,
    )


def plain_run(model_dir: str, steps: int, dtype: torch.dtype) -> tuple[list[float], dict[str, Tensor]]:
    """Trains with nothing of ours: one process, one batch, AdamW."""
    model = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    rows = ragged_rows()
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * (1 - step / (2 * steps))
        logits = model(input_ids=rows["input_ids"], attention_mask=rows["attention_mask"]).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), rows["labels"].flatten(), ignore_index=-100
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, {name: value.detach() for name, value in model.state_dict().items()}


def our_run(
    rank: int,
    world_size: int,
    port: int,
    model_dir: str,
    config: dict[str, object],
    batching: BatchSettings,
    steps: int,
    left: bool,
) -> tuple[list[float], dict[str, Tensor], tuple[int, int]]:
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

    losses = [float(strategy.train_step(batch, loss)["default/loss"]) for _ in range(steps)]  # type: ignore[arg-type]  # Metric is a number
    whole = {n: p.full_tensor().clone() for n, p in strategy.unwrap_model().state_dict().items()}
    return losses, whole, (info.dp_rank, info.dp_size)


def compare(
    model_dir: Path,
    *,
    world_size: int,
    config: dict[str, object],
    batching: BatchSettings,
    dtype: torch.dtype = torch.float32,
    left: bool = False,
    loss_tolerance: float = 1e-6,
    tolerance: float = 2e-5,
) -> None:
    losses, state = plain_run(str(model_dir), 3, dtype)
    for ours, theirs, _ in run_ranks(our_run, world_size, str(model_dir), config, batching, 3, left):
        assert max(abs(a - b) for a, b in zip(ours, losses, strict=True)) < loss_tolerance
        for name, value in state.items():
            assert (theirs[name] - value).abs().max().item() < tolerance, name


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_training_with_two_ranks_and_accumulation_equals_one_process(tiny: Path, rows: int) -> None:
    compare(tiny, world_size=2, config={}, batching=BatchSettings(train_rows=rows))
