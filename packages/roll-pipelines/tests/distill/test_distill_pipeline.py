"""Distillation in this process, on a real engine, against plain PyTorch."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from roll_pipelines.columns import tensor
from roll_pipelines.config import WorkerConfig
from roll_pipelines.config.arguments import ModelArguments, StrategyArguments
from roll_pipelines.data import TinyModelConfig, collate, save_tiny_model
from roll_pipelines.data.supervised import EncodedRow
from roll_pipelines.distill import DistillConfig, DistillPipeline
from roll_pipelines.distill.teacher import DistillError, shared_vocabulary
from roll_pipelines.losses.distillation import DistillOptions, comparable, kept_log_probs, token_divergence
from roll_pipelines.testing import (
    EPSILON,
    RATE,
    largest_difference,
    learning_role,
    learnt,
    rows_file,
    run_to_end,
    tiny_model,
)


def configuration(
    folder: Path,
    *,
    micro: int = 6,
    accumulation: int = 1,
    steps: int = 1,
    packing: bool = False,
    **fields: object,
) -> DistillConfig:
    """Returns a run on six rows with a student and a teacher of different widths, built on first use."""
    rows = [{"prompt": "abcd"[: 1 + n % 4], "response": "abcde"[n % 2 : 2 + n % 3]} for n in range(6)]
    student = learning_role(rows_file(folder / "rows.jsonl", rows), micro=micro, accumulation=accumulation)
    student.use_sequence_packing = packing
    models = {
        name: tiny_model(folder / name, alphabet="abcde", width=width, seed=seed, spread=0.3)
        for seed, (name, width) in enumerate({"student": 16, "teacher": 24}.items())
    }
    teacher = WorkerConfig(strategy_args=StrategyArguments(strategy_name="hf_infer"), infer_batch_size=4)
    values: dict[str, object] = {
        "student": student,
        "teacher": teacher,
        "runtime": "local",
        "pretrain": models["student"],
        "teacher_pretrain": models["teacher"],
        "output_dir": str(folder / "run"),
        "track_with": ["jsonl"],
        "sequence_length": 10,
        "max_steps": steps,
        "logits_topk": 3,
        "kd_temperature": 2.0,
    }
    return DistillConfig(**{**values, **fields})  # type: ignore[arg-type]  # fields by name


def run(config: DistillConfig) -> list[dict[str, float]]:
    return run_to_end(DistillPipeline, config)


def plain_step(config: DistillConfig, rows: list[EncodedRow]) -> tuple[float, PreTrainedModel]:
    """Returns the loss of one AdamW step of plain PyTorch on all rows at once, and the student after it."""
    student = AutoModelForCausalLM.from_pretrained(str(config.pretrain))
    teacher = AutoModelForCausalLM.from_pretrained(str(config.teacher_pretrain))
    batch = collate(rows, pad_token_id=0)
    ids, mask, labels = (tensor(batch, name) for name in ("input_ids", "attention_mask", "labels"))
    with torch.no_grad():
        shown = teacher(input_ids=ids, attention_mask=mask).logits
    logits = student(input_ids=ids, attention_mask=mask).logits
    losses: list[Tensor] = []
    for row, position in (labels != -100).nonzero().tolist():
        kept = shown[row, position].topk(config.logits_topk).indices if config.logits_topk else None
        p, q = (
            comparable(
                kept_log_probs(of[row, position], kept, temperature=config.kd_temperature), whole=kept is None
            )
            for of in (shown, logits)
        )
        divergence = token_divergence(
            q, p, DistillOptions(kind="forward_kl", temperature=config.kd_temperature)
        )
        right = torch.log_softmax(logits[row, position], -1)[labels[row, position]]
        share = config.distill_loss_weight
        losses.append(share * divergence - (1.0 - share) * right)
    loss = torch.stack(losses).mean()
    loss.backward()  # type: ignore[no-untyped-call]  # torch
    torch.optim.AdamW(student.parameters(), lr=RATE, eps=EPSILON, weight_decay=0.0).step()
    return float(loss.detach()), student


@pytest.mark.parametrize(
    ("topk", "micro", "accumulation", "packing"),
    [(3, 6, 1, False), (0, 6, 1, False), (3, 2, 3, False), (3, 4, 2, True), (0, 3, 2, True)],
)
def test_a_step_is_that_of_plain_pytorch_whatever_is_sent_and_however_rows_are_laid_out(
    tmp_path: Path, topk: int, micro: int, accumulation: int, packing: bool
) -> None:
    config = configuration(
        tmp_path, micro=micro, accumulation=accumulation, packing=packing, logits_topk=topk
    )
    with DistillPipeline(config) as pipeline:
        drawn = [pipeline.training[row] for row in pipeline.order.batch(0, batch_size=pipeline.batch_size)]
        pipeline.run()
        metrics = pipeline.state.log_history[0]
    loss, student = plain_step(config, drawn)
    assert metrics["student/loss"] == pytest.approx(loss, abs=1e-6)
    assert largest_difference(learnt(config, "student"), student) < 1e-6


def test_a_resumed_run_has_the_metrics_and_weights_of_one_that_never_stopped(tmp_path: Path) -> None:
    straight = configuration(tmp_path, micro=2, steps=4, output_dir=str(tmp_path / "straight"))
    wanted = run(straight)
    run(configuration(tmp_path, micro=2, steps=2))
    second = configuration(tmp_path, micro=2, steps=4, resume_from_checkpoint=True)
    assert run(second) == wanted
    assert largest_difference(learnt(second, "student"), learnt(straight, "student")) == 0.0


def test_a_student_that_equals_its_teacher_diverges_from_it_nowhere_and_validation_says_so(
    tmp_path: Path,
) -> None:
    config = configuration(tmp_path, teacher_pretrain=str(tmp_path / "student"))
    config.validation_files = [str(tmp_path / "rows.jsonl")]
    with DistillPipeline(config) as pipeline:
        found = pipeline.validate(teacher=True)
    assert found["student/val_divergence"] == pytest.approx(0.0, abs=1e-6)
    assert found["student/val_loss"] == pytest.approx(found["teacher/val_loss"], abs=1e-6)
    assert found["student/val_exact_match"] == found["teacher/val_exact_match"]


def test_conversations_are_distilled_where_the_assistant_speaks(tmp_path: Path) -> None:
    config = configuration(tmp_path, micro=2, sequence_length=48)
    for seed, name in enumerate(("student", "teacher")):
        sizes = TinyModelConfig(alphabet="usertaisn: \nbc", hidden_size=16, num_layers=1, max_positions=64)
        save_tiny_model(tmp_path / name, sizes, seed=seed)
    talk = [{"role": role, "content": text} for role, text in [("user", "b"), ("assistant", "c")]]
    file = tmp_path / "talks.jsonl"
    file.write_text(json.dumps({"talk": talk * 2}) + "\n" + json.dumps({"talk": talk}), encoding="utf-8")
    arguments = config.student.data_args
    arguments.file_name, arguments.messages, arguments.template = str(file), "talk", "plain"
    with DistillPipeline(config) as pipeline:
        drawn = [pipeline.training[row] for row in pipeline.order.batch(0, batch_size=2)]
        pipeline.run()
        metrics = pipeline.state.log_history[0]
    long, short = (sum(row.learnt) for row in pipeline.training)
    assert long == 2 * short > 0
    assert pipeline.summary["data/rows_kept"] == 2.0
    loss, student = plain_step(config, drawn)
    assert metrics["student/loss"] == pytest.approx(loss, abs=1e-6)
    assert largest_difference(learnt(config, "student"), student) < 1e-6


def test_models_with_other_tokenizers_are_refused(tmp_path: Path) -> None:
    one, two = (
        save_tiny_model(
            tmp_path / letters, TinyModelConfig(alphabet=letters, hidden_size=8, num_layers=1), seed=0
        )
        for letters in ("abc", "bca")
    )
    with pytest.raises(DistillError, match=r"must share a tokenizer, but 3 of 6 tokens have other ids"):
        shared_vocabulary(student=str(one), teacher=str(two))
    assert shared_vocabulary(student=str(one), teacher=str(one)) is None


def test_a_teacher_whose_output_is_padded_is_cut_to_the_student_s_vocabulary(tmp_path: Path) -> None:
    config = configuration(tmp_path, logits_topk=0)
    teacher = AutoModelForCausalLM.from_pretrained(tmp_path / "teacher")
    teacher.resize_token_embeddings(16, mean_resizing=False)
    teacher.save_pretrained(tmp_path / "teacher")
    with DistillPipeline(config) as pipeline:
        assert pipeline.vocabulary == 8
        batch = pipeline.taught(pipeline.training[:2])
        pipeline.run()
    assert tensor(batch, "teacher_log_probs").shape[-1] == 8
    torch.testing.assert_close(
        tensor(batch, "teacher_log_probs").exp().sum(-1), torch.ones(2, tensor(batch, "labels").shape[1])
    )


@pytest.mark.parametrize(
    ("fields", "path", "rule"),
    [
        ({"teacher_pretrain": None}, "teacher_pretrain", "or tiny_teacher must be given"),
        ({"tiny_teacher": TinyModelConfig()}, "tiny_teacher", "must be left out"),
        ({"logits_topk": -1}, "logits_topk", "at least 0"),
        ({"kd_temperature": 0.0}, "kd_temperature", "above 0"),
        ({"js_weight": 1.5}, "js_weight", "in [0, 1]"),
        ({"distill_loss_weight": -0.1}, "distill_loss_weight", "in [0, 1]"),
        ({"sequence_length": None}, "sequence_length", "must be given"),
    ],
)
def test_what_cannot_work_is_refused_with_its_path(
    tmp_path: Path, fields: dict[str, object], path: str, rule: str
) -> None:
    found = {problem.path: problem.rule for problem in configuration(tmp_path, **fields).problems()}  # type: ignore[arg-type]  # fields by name
    assert list(found) == [path]
    assert rule in found[path]


def test_the_teacher_has_its_own_model_and_the_student_the_run_s(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    assert config.teacher.model_args == ModelArguments(model_name_or_path=str(tmp_path / "teacher"))
    assert config.student.model_args.model_name_or_path == str(tmp_path / "student")
