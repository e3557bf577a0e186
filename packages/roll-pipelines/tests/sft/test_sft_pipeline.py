"""Supervised fine-tuning in this process, from a file to a checkpoint, against plain PyTorch."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from roll_pipelines.columns import tensor
from roll_pipelines.config.arguments import ModelArguments
from roll_pipelines.data import collate
from roll_pipelines.data.supervised import EncodedRow
from roll_pipelines.sft import SFTConfig, SFTPipeline
from roll_pipelines.testing import (
    EPSILON,
    RATE,
    largest_difference,
    last_checkpoint,
    learning_role,
    learnt,
    rows_file,
    run_to_end,
    tiny_model,
)

LETTERS = "usertaisn: \nbc"


def configuration(
    folder: Path, *, micro: int = 8, accumulation: int = 1, steps: int = 1, **fields: object
) -> SFTConfig:
    """Returns a run on ten rows of different lengths with a model of one layer, built on first use."""
    rows = [{"prompt": "user"[: 1 + n % 4], "response": "taisnbc"[n % 3 : 2 + n % 6]} for n in range(10)]
    file = rows_file(folder / "rows.jsonl", rows)
    values: dict[str, object] = {
        "sft_train": learning_role(file, micro=micro, accumulation=accumulation),
        "runtime": "local",
        "pretrain": tiny_model(folder / "model", alphabet=LETTERS),
        "output_dir": str(folder / "run"),
        "track_with": ["jsonl"],
        "sequence_length": 48,
        "max_steps": steps,
    }
    return SFTConfig(**{**values, **fields})  # type: ignore[arg-type]  # fields by name


def plain_step(config: SFTConfig, rows: list[EncodedRow]) -> tuple[float, PreTrainedModel]:
    """Returns the loss of one AdamW step of plain PyTorch on all rows at once, and the model after it."""
    model = AutoModelForCausalLM.from_pretrained(str(config.pretrain))
    batch = collate(rows, pad_token_id=0)
    ids, mask, labels = (tensor(batch, name) for name in ("input_ids", "attention_mask", "labels"))
    logits = model(input_ids=ids, attention_mask=mask).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    loss.backward()  # type: ignore[no-untyped-call]  # torch
    torch.optim.AdamW(model.parameters(), lr=RATE, eps=EPSILON, weight_decay=0.0).step()
    return float(loss.detach()), model


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize(("micro", "accumulation"), [(8, 1), (2, 4)])
def test_a_step_is_that_of_plain_pytorch_whatever_the_micro_batches_and_the_packing(
    tmp_path: Path, micro: int, accumulation: int, packing: bool
) -> None:
    config = configuration(tmp_path, micro=micro, accumulation=accumulation)
    config.sft_train.use_sequence_packing = packing
    with SFTPipeline(config) as pipeline:
        drawn = [pipeline.training[row] for row in pipeline.order.batch(0, batch_size=8)]
        pipeline.run()
        metrics = pipeline.state.log_history[0]
    loss, model = plain_step(config, drawn)
    assert metrics["sft_train/loss"] == pytest.approx(loss, abs=1e-6)
    assert largest_difference(learnt(config, "sft_train"), model) < 1e-6


def test_a_step_on_conversations_learns_the_assistant_s_words_as_plain_pytorch_does(tmp_path: Path) -> None:
    config = configuration(tmp_path, micro=2)
    talk = [{"role": role, "content": text} for role, text in [("user", "b"), ("assistant", "cc")]]
    file = tmp_path / "talks.jsonl"
    file.write_text(json.dumps({"talk": talk * 2}) + "\n" + json.dumps({"talk": talk}), encoding="utf-8")
    arguments = config.sft_train.data_args
    arguments.file_name, arguments.messages, arguments.template = str(file), "talk", "plain"
    with SFTPipeline(config) as pipeline:
        drawn = [pipeline.training[row] for row in pipeline.order.batch(0, batch_size=2)]
        pipeline.run()
        metrics = pipeline.state.log_history[0]
    loss, model = plain_step(config, drawn)
    assert metrics["sft_train/loss"] == pytest.approx(loss, abs=1e-6)
    assert largest_difference(learnt(config, "sft_train"), model) < 1e-6


def test_with_a_template_prompts_and_responses_are_what_a_user_and_an_assistant_say(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    config.sft_train.data_args.template = "plain"
    with SFTPipeline(config) as pipeline:
        row = pipeline.training[0]
        ids = [*row.prompt_ids, *row.response_ids]
        assert pipeline.tokenizer.decode(ids) == "user: u\nassistant: ta<eos>\n"
        assert row.learnt == (True,) * len(row.response_ids)


def test_a_resumed_run_has_the_metrics_and_weights_of_one_that_never_stopped(tmp_path: Path) -> None:
    straight = configuration(tmp_path, micro=4, steps=4, output_dir=str(tmp_path / "straight"))
    wanted = run_to_end(SFTPipeline, straight)
    run_to_end(SFTPipeline, configuration(tmp_path, micro=4, steps=2))
    second = configuration(tmp_path, micro=4, steps=4, resume_from_checkpoint=True)
    assert run_to_end(SFTPipeline, second) == wanted
    assert largest_difference(learnt(second, "sft_train"), learnt(straight, "sft_train")) == 0.0


def test_a_resumed_run_with_an_adapter_goes_on_as_one_that_never_stopped(tmp_path: Path) -> None:
    def adapted(**fields: object) -> SFTConfig:
        config = configuration(tmp_path, micro=4, **fields)  # type: ignore[arg-type]  # fields by name
        config.sft_train.model_args = ModelArguments(
            model_name_or_path=str(tmp_path / "model"), lora_rank=2, lora_dropout=0.5
        )
        return config

    straight = adapted(steps=4, output_dir=str(tmp_path / "straight"))
    wanted = run_to_end(SFTPipeline, straight)
    run_to_end(SFTPipeline, adapted(steps=2))
    assert run_to_end(SFTPipeline, adapted(steps=4, resume_from_checkpoint=True)) == wanted
    first = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert largest_difference(learnt(straight, "sft_train"), first) > 1e-3
    assert (last_checkpoint(straight, "sft_train") / "adapter" / "adapter_model.safetensors").is_file()


def test_validation_covers_every_row_and_learns_nothing_and_lengths_are_counted(tmp_path: Path) -> None:
    config = configuration(tmp_path, sequence_length=6, validation_files=[str(tmp_path / "rows.jsonl")])
    config.sft_train.data_args.max_length_policy = "drop"
    with SFTPipeline(config) as pipeline:
        kept = len(pipeline.training)
        first, second = pipeline.validate(), pipeline.validate()
        assert len(pipeline.validation) == kept < 10
        loss, _ = plain_step(config, list(pipeline.validation))
        assert pipeline.summary["data/rows_dropped"] == 10 - kept
    assert first == second
    assert first["sft_train/val_loss"] == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize("norm", [None, 0.0])
def test_a_norm_of_none_or_zero_clips_nothing(tmp_path: Path, norm: float | None) -> None:
    config = configuration(tmp_path)
    config.sft_train.training_args.max_grad_norm = norm
    with SFTPipeline(config) as pipeline:
        drawn = [pipeline.training[row] for row in pipeline.order.batch(0, batch_size=8)]
        pipeline.run()
    assert largest_difference(learnt(config, "sft_train"), plain_step(config, drawn)[1]) < 1e-6


def test_the_learning_rate_falls_over_the_optimizer_steps_of_the_passes_over_the_rows(tmp_path: Path) -> None:
    config = configuration(tmp_path, micro=1, accumulation=5, steps=99)
    training = config.sft_train.training_args
    training.lr_scheduler_type, training.num_train_epochs = "linear", 2.0
    rates = [row["sft_train/lr"] for row in run_to_end(SFTPipeline, config)]
    # 10 rows in steps of 5, twice.
    assert rates == pytest.approx([RATE, 0.75 * RATE, 0.5 * RATE, 0.25 * RATE])
