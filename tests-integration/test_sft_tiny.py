"""Supervised fine-tuning on Ray, started as a user starts it, and its numbers against plain PyTorch."""

from pathlib import Path

import pytest
import runs
import torch
from transformers import AutoModelForCausalLM

from roll_executor import Cluster
from roll_pipelines.config import BaseConfig, WorkerConfig
from roll_pipelines.config.arguments import ModelArguments, StrategyArguments, TrainingArguments
from roll_pipelines.data import TinyModelConfig, collate, save_tiny_model
from roll_pipelines.data.supervised import EncodedRow
from roll_protocol import DataProto, reduce_metrics
from roll_resources import ResourceManager

EXAMPLE: Path = runs.EXAMPLES / "sft_tiny.yaml"
pytestmark = [pytest.mark.ray, pytest.mark.timeout(3000)]


def rows() -> list[EncodedRow]:
    """Eight rows of different lengths."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(3, 8, (8, 9), generator=generator).tolist()
    return [EncodedRow(tuple(ids[: 1 + n % 3]), (*ids[1 + n % 3 : 3 + n], 1)) for n, ids in enumerate(drawn)]


def plain_losses(model_dir: Path, batch: DataProto, *, steps: int, learning_rate: float) -> list[float]:
    """The losses of a plain PyTorch loop over one batch."""
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    losses = []
    for _ in range(steps):
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        labels = batch["labels"]
        assert isinstance(labels, torch.Tensor)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("accumulation", [1, 4])
def test_losses_of_two_workers_over_steps_equal_a_plain_loop(
    tmp_path: Path, accumulation: int, packing: bool
) -> None:
    """One worker is held to a plain loop in `packages/roll-pipelines/tests/sft/test_sft_pipeline.py`."""
    model = save_tiny_model(tmp_path, TinyModelConfig(alphabet="abcde", hidden_size=16, num_layers=1), seed=0)
    batch = collate(rows(), pad_token_id=0)
    role = WorkerConfig(
        world_size=2,
        strategy_args=StrategyArguments(strategy_name="fsdp2_train"),
        model_args=ModelArguments(model_name_or_path=str(model)),
        training_args=TrainingArguments(
            learning_rate=0.01,
            per_device_train_batch_size=4 // accumulation,
            gradient_accumulation_steps=accumulation,
            max_grad_norm=None,
        ),
        use_sequence_packing=packing,
    )
    with (
        ResourceManager(runtime="ray") as manager,
        Cluster("sft_train", "roll_pipelines.workers.SFTWorker", manager, role) as cluster,
    ):
        cluster.initialize(pipeline_config=BaseConfig())
        before = reduce_metrics(cluster.val_step(batch).meta_info["metrics"])
        found = [
            reduce_metrics(cluster.train_step(batch).meta_info["metrics"])["sft_train/loss"] for _ in range(3)
        ]
    expected = plain_losses(model, batch, steps=3, learning_rate=0.01)
    assert found == pytest.approx(expected, abs=1e-6)
    assert before["sft_train/val_loss"] == pytest.approx(expected[0], abs=1e-6)


def test_the_example_learns_to_answer_held_out_problems(tmp_path: Path) -> None:
    finished = runs.run("run", EXAMPLE, tmp_path / "run")
    assert finished.code == 0, finished.output[-4000:]
    summary = finished.summary()
    assert summary["sft_train/val_exact_match"] >= 0.95
    assert summary["steps"] == 400
    assert [row["step"] for row in finished.metrics()] == list(range(400))
    AutoModelForCausalLM.from_pretrained(finished.checkpoint() / "sft_train")


def test_a_resumed_run_has_the_metrics_of_one_that_never_stopped(tmp_path: Path) -> None:
    small = ("num_problems=64", "task.num_held_out=20", "eval_steps=0")
    overrides = (*small, "sft_train.training_args.lr_scheduler_type=constant")
    whole = runs.run("run", EXAMPLE, tmp_path / "whole", *overrides, "max_steps=4")
    halves = runs.run("run", EXAMPLE, tmp_path / "halves", *overrides, "max_steps=2")
    resumed = runs.run("resume", halves.directory, halves.directory, "max_steps=4")
    assert (whole.code, halves.code, resumed.code) == (0, 0, 0), resumed.output[-4000:]
    assert resumed.untimed() == whole.untimed()
    assert resumed.summary()["sft_train/val_loss"] == whole.summary()["sft_train/val_loss"]
