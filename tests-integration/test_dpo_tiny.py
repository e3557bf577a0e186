"""Preference training on Ray, started as a user starts it, and its numbers on one worker and on two."""

import json
from pathlib import Path

import pytest
import runs
import torch
from transformers import AutoModelForCausalLM

from roll_pipelines.config import WorkerConfig
from roll_pipelines.config.arguments import DataArguments, StrategyArguments, TrainingArguments
from roll_pipelines.data import TinyModelConfig, save_tiny_model
from roll_pipelines.dpo import DPOConfig, DPOPipeline

EXAMPLE: Path = runs.EXAMPLES / "dpo_tiny.yaml"
pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


def configuration(folder: Path, *, runtime: str, workers: int) -> DPOConfig:
    """Returns two steps of six pairs, out of seven of different lengths."""
    model = folder / "model"
    if not model.exists():
        save_tiny_model(model, TinyModelConfig(alphabet="abcde", hidden_size=16, num_layers=1), seed=0)
    rows = [
        {"prompt": "ab"[: 1 + n % 2], "chosen": "abcde"[: 1 + n % 3], "rejected": "edcba"[: 1 + n % 4]}
        for n in range(7)
    ]
    file = folder / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    role = WorkerConfig(
        world_size=workers,
        strategy_args=StrategyArguments(strategy_name="fsdp2_train"),
        training_args=TrainingArguments(
            learning_rate=0.05,
            adam_epsilon=1e-2,
            per_device_train_batch_size=6 // workers,
            max_grad_norm=None,
            num_train_epochs=9,
        ),
        data_args=DataArguments(file_name=str(file)),
    )
    return DPOConfig(
        actor_train=role,
        reference=WorkerConfig(strategy_args=StrategyArguments(strategy_name="hf_infer")),
        runtime=runtime,  # type: ignore[arg-type]  # one of two words
        pretrain=str(model),
        output_dir=str(folder / runtime),
        track_with=[],
        sequence_length=8,
        max_steps=2,
        beta=0.5,
    )


def trained(config: DPOConfig) -> tuple[list[float], list[torch.Tensor]]:
    """Returns the losses of a run and the weights at its end."""
    with DPOPipeline(config) as pipeline:
        assert pipeline.batch_size == 6
        pipeline.run()
        losses = [row["actor_train/loss"] for row in pipeline.state.log_history]
    model = AutoModelForCausalLM.from_pretrained(config.run_dir / "checkpoints/checkpoint-1/actor_train")
    return losses, [parameter.detach() for parameter in model.parameters()]


def test_two_workers_on_ray_learn_what_one_in_this_process_learns(tmp_path: Path) -> None:
    alone, together = (
        trained(configuration(tmp_path, runtime=runtime, workers=workers))
        for runtime, workers in (("local", 1), ("ray", 2))
    )
    assert together[0] == pytest.approx(alone[0], abs=1e-6)
    for one, other in zip(together[1], alone[1], strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


def test_the_example_prefers_the_right_answer_to_held_out_problems(tmp_path: Path) -> None:
    finished = runs.run("run", EXAMPLE, tmp_path / "run")
    assert finished.code == 0, finished.output[-4000:]
    summary = finished.summary()
    assert summary["val/accuracy"] >= 0.95
    assert summary["data/rows_kept"] == 4096
    assert [row["step"] for row in finished.metrics()] == list(range(100))
    AutoModelForCausalLM.from_pretrained(finished.checkpoint() / "actor_train")
