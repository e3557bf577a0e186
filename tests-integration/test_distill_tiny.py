"""Distillation on Ray, started as a user starts it, and its numbers on one worker and on two."""

import json
from pathlib import Path

import pytest
import runs
import torch
from transformers import AutoModelForCausalLM

from roll_pipelines.config import WorkerConfig
from roll_pipelines.config.arguments import DataArguments, StrategyArguments, TrainingArguments
from roll_pipelines.data import TinyModelConfig, save_tiny_model
from roll_pipelines.distill import DistillConfig, DistillPipeline

EXAMPLE: Path = runs.EXAMPLES / "distill_tiny.yaml"
pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


def configuration(folder: Path, *, runtime: str, students: int, teachers: int) -> DistillConfig:
    """Returns two steps of six rows, out of seven of different lengths, with models of different widths."""
    for seed, (name, width) in enumerate({"student": 16, "teacher": 24}.items()):
        if not (folder / name).exists():
            sizes = TinyModelConfig(alphabet="abcde", hidden_size=width, num_layers=1, initializer_range=0.3)
            save_tiny_model(folder / name, sizes, seed=seed)
    rows = [{"prompt": "abcd"[: 1 + n % 4], "response": "abcde"[n % 2 : 2 + n % 3]} for n in range(7)]
    file = folder / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    student = WorkerConfig(
        world_size=students,
        strategy_args=StrategyArguments(strategy_name="fsdp2_train"),
        training_args=TrainingArguments(
            learning_rate=0.05,
            adam_epsilon=1e-2,
            per_device_train_batch_size=6 // students,
            max_grad_norm=None,
            num_train_epochs=9,
        ),
        data_args=DataArguments(file_name=str(file)),
    )
    return DistillConfig(
        student=student,
        teacher=WorkerConfig(
            world_size=teachers, strategy_args=StrategyArguments(strategy_name="hf_infer"), infer_batch_size=2
        ),
        runtime=runtime,  # type: ignore[arg-type]  # one of two words
        pretrain=str(folder / "student"),
        teacher_pretrain=str(folder / "teacher"),
        output_dir=str(folder / f"{runtime}-{students}-{teachers}"),
        track_with=[],
        sequence_length=10,
        max_steps=2,
        logits_topk=3,
        kd_temperature=2.0,
    )


def trained(config: DistillConfig) -> tuple[list[float], list[torch.Tensor]]:
    """Returns the losses of a run and the student's weights at its end."""
    with DistillPipeline(config) as pipeline:
        assert pipeline.batch_size == 6
        pipeline.run()
        losses = [row["student/loss"] for row in pipeline.state.log_history]
    model = AutoModelForCausalLM.from_pretrained(config.run_dir / "checkpoints/checkpoint-1/student")
    return losses, [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize(("students", "teachers"), [(2, 1), (1, 2)])
def test_a_teacher_and_a_student_of_different_sizes_learn_what_one_of_each_learns(
    tmp_path: Path, students: int, teachers: int
) -> None:
    alone = trained(configuration(tmp_path, runtime="local", students=1, teachers=1))
    together = trained(configuration(tmp_path, runtime="ray", students=students, teachers=teachers))
    assert together[0] == pytest.approx(alone[0], abs=1e-6)
    for one, other in zip(together[1], alone[1], strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


def test_the_student_of_the_example_is_nearly_as_accurate_as_its_teacher(tmp_path: Path) -> None:
    finished = runs.run("run", EXAMPLE, tmp_path / "run")
    assert finished.code == 0, finished.output[-4000:]
    summary = finished.summary()
    assert summary["teacher/val_exact_match"] >= 0.9
    assert summary["student/val_exact_match"] >= 0.95 * summary["teacher/val_exact_match"]
    assert [row["step"] for row in finished.metrics()] == list(range(300))
    AutoModelForCausalLM.from_pretrained(finished.checkpoint() / "student")
