"""Distillation on Ray, started as a user starts it, and its numbers on one worker and on two."""

from pathlib import Path

import pytest
import runs
from transformers import AutoModelForCausalLM, PreTrainedModel

from roll_pipelines.config import WorkerConfig
from roll_pipelines.config.arguments import StrategyArguments
from roll_pipelines.distill import DistillConfig, DistillPipeline
from roll_pipelines.sft.config import rows_per_step
from roll_pipelines.testing import (
    largest_difference,
    learning_role,
    learnt,
    rows_file,
    run_to_end,
    tiny_model,
)

EXAMPLE: Path = runs.EXAMPLES / "distill_tiny.yaml"
pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


def configuration(folder: Path, *, runtime: str, students: int, teachers: int) -> DistillConfig:
    """Returns two steps of six rows, out of seven of different lengths, with models of different widths."""
    models = {
        name: tiny_model(folder / name, alphabet="abcde", width=width, seed=seed, spread=0.3)
        for seed, (name, width) in enumerate({"student": 16, "teacher": 24}.items())
    }
    rows = [{"prompt": "abcd"[: 1 + n % 4], "response": "abcde"[n % 2 : 2 + n % 3]} for n in range(7)]
    file = rows_file(folder / "rows.jsonl", rows)
    return DistillConfig(
        student=learning_role(file, micro=6 // students, workers=students),
        teacher=WorkerConfig(
            world_size=teachers, strategy_args=StrategyArguments(strategy_name="hf_infer"), infer_batch_size=2
        ),
        runtime=runtime,  # type: ignore[arg-type]  # one of two words
        pretrain=models["student"],
        teacher_pretrain=models["teacher"],
        output_dir=str(folder / f"{runtime}-{students}-{teachers}"),
        track_with=[],
        sequence_length=10,
        max_steps=2,
        logits_topk=3,
        kd_temperature=2.0,
    )


def trained(config: DistillConfig) -> tuple[list[float], PreTrainedModel]:
    """Returns the losses of a run and the student at its end."""
    assert rows_per_step(config.student) == 6
    losses = [row["student/loss"] for row in run_to_end(DistillPipeline, config)]
    return losses, learnt(config, "student")


@pytest.mark.parametrize(("students", "teachers"), [(2, 1), (1, 2)])
def test_a_teacher_and_a_student_of_different_sizes_learn_what_one_of_each_learns(
    tmp_path: Path, students: int, teachers: int
) -> None:
    alone = trained(configuration(tmp_path, runtime="local", students=1, teachers=1))
    together = trained(configuration(tmp_path, runtime="ray", students=students, teachers=teachers))
    assert together[0] == pytest.approx(alone[0], abs=1e-6)
    assert largest_difference(together[1], alone[1]) < 1e-6


def test_the_student_of_the_example_is_nearly_as_accurate_as_its_teacher(tmp_path: Path) -> None:
    finished = runs.run("run", EXAMPLE, tmp_path / "run")
    assert finished.code == 0, finished.output[-4000:]
    summary = finished.summary()
    assert summary["teacher/val_exact_match"] >= 0.9
    assert summary["student/val_exact_match"] >= 0.95 * summary["teacher/val_exact_match"]
    assert [row["step"] for row in finished.metrics()] == list(range(300))
    AutoModelForCausalLM.from_pretrained(finished.checkpoint() / "student")
