"""Preference training in this process, on a real engine, against plain PyTorch."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from roll_pipelines.columns import tensor
from roll_pipelines.config import WorkerConfig
from roll_pipelines.config.arguments import StrategyArguments
from roll_pipelines.data.pairs import EncodedPair, answer_rows, collate_pairs
from roll_pipelines.dpo import DPOConfig, DPOPipeline
from roll_pipelines.dpo.worker import pair_scores
from roll_pipelines.losses.preference import preference_loss, sequence_log_probs
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


def pairs_file(folder: Path, count: int = 6, *, name: str = "pairs") -> str:
    """Writes pairs of different lengths and returns the file's name."""
    rows = [
        {"prompt": "ab"[: 1 + n % 2], "chosen": "abcde"[: 1 + n % 3], "rejected": "edcba"[: 1 + n % 4]}
        for n in range(count)
    ]
    return rows_file(folder / f"{name}.jsonl", rows)


def configuration(
    folder: Path, *, micro: int = 6, accumulation: int = 1, steps: int = 1, **fields: object
) -> DPOConfig:
    """Returns a run on six pairs with a model of one layer, which is built on first use."""
    reference = WorkerConfig(strategy_args=StrategyArguments(strategy_name="hf_infer"), infer_batch_size=4)
    values: dict[str, object] = {
        "actor_train": learning_role(pairs_file(folder), micro=micro, accumulation=accumulation),
        "reference": reference,
        "runtime": "local",
        "pretrain": tiny_model(folder / "model", alphabet="abcde"),
        "output_dir": str(folder / "run"),
        "track_with": ["jsonl"],
        "sequence_length": 8,
        "max_steps": steps,
        "beta": 0.5,
    }
    return DPOConfig(**{**values, **fields})  # type: ignore[arg-type]  # fields by name


def run(config: DPOConfig) -> list[dict[str, float]]:
    return run_to_end(DPOPipeline, config)


def summed(model: PreTrainedModel, pairs: list[EncodedPair]) -> tuple[Tensor, Tensor]:
    rows = answer_rows(collate_pairs(pairs, pad_token_id=0, paired=True))
    ids, mask = tensor(rows, "input_ids"), tensor(rows, "attention_mask")
    logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
    logp = torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    return sequence_log_probs(logp, tensor(rows, "response_mask"))


def plain_step(config: DPOConfig, pairs: list[EncodedPair]) -> tuple[float, PreTrainedModel]:
    """Returns the loss of one AdamW step of plain PyTorch on all pairs at once, and the model after it."""
    policy = AutoModelForCausalLM.from_pretrained(str(config.pretrain))
    reference = AutoModelForCausalLM.from_pretrained(str(config.pretrain))
    # The reference is another model, so that its part in the loss is not zero.
    with torch.no_grad():
        ref, _ = summed(reference, pairs)
    sums, tokens = summed(policy, pairs)
    scores = pair_scores(sums, tokens, ref, torch.ones(2 * len(pairs), dtype=torch.bool), kl=0.0)
    loss = preference_loss(config.loss).function(scores, config.options()).mean()
    loss.backward()  # type: ignore[no-untyped-call]  # torch
    torch.optim.AdamW(policy.parameters(), lr=RATE, eps=EPSILON, weight_decay=0.0).step()
    return float(loss.detach()), policy


@pytest.mark.parametrize(("micro", "accumulation"), [(6, 1), (2, 3), (4, 2)])
@pytest.mark.parametrize("loss", ["sigmoid", "ipo", "simpo"])
def test_a_step_is_that_of_plain_pytorch_whatever_the_micro_batches(
    tmp_path: Path, loss: str, micro: int, accumulation: int
) -> None:
    config = configuration(tmp_path, micro=micro, accumulation=accumulation, loss=loss, ipo_per_token=True)
    with DPOPipeline(config) as pipeline:
        drawn = [pipeline.training[row] for row in pipeline.order.batch(0, batch_size=pipeline.batch_size)]
        pipeline.run()
        metrics = pipeline.state.log_history[0]
    loss_value, model = plain_step(config, drawn)
    assert metrics["actor_train/loss"] == pytest.approx(loss_value, abs=1e-6)
    assert largest_difference(learnt(config, "actor_train"), model) < 1e-6


@pytest.mark.parametrize(("tokens", "packing"), [(16, False), (16, True), (None, True)])
def test_a_token_budget_and_packing_keep_pairs_together_and_the_step_that_of_plain_pytorch(
    tmp_path: Path, tokens: int | None, packing: bool
) -> None:
    config = configuration(tmp_path, micro=3, accumulation=2)
    config.actor_train.use_dynamic_batching_in_train = tokens is not None
    config.actor_train.max_tokens_per_microbatch_in_train = tokens
    config.actor_train.use_sequence_packing = packing
    with DPOPipeline(config) as pipeline:
        drawn = [pipeline.training[row] for row in pipeline.order.batch(0, batch_size=pipeline.batch_size)]
        pipeline.run()
        metrics = pipeline.state.log_history[0]
    loss_value, model = plain_step(config, drawn)
    assert metrics["actor_train/loss"] == pytest.approx(loss_value, abs=1e-6)
    assert largest_difference(learnt(config, "actor_train"), model) < 1e-6


@pytest.mark.parametrize("cached", [False, True])
def test_a_policy_with_an_adapter_is_held_to_the_model_below_it_without_a_reference_role(
    tmp_path: Path, cached: bool
) -> None:
    """An adapter of a policy with a reference role beside it learns the same."""
    losses, roles = {}, {}
    for name, reference in {"own": WorkerConfig(), "role": configuration(tmp_path).reference}.items():
        config = configuration(
            tmp_path,
            steps=3,
            output_dir=str(tmp_path / name),
            reference=reference,
            cache_reference=cached and name == "own",
        )
        config.actor_train.model_args.lora_rank = 2
        with DPOPipeline(config) as pipeline:
            roles[name] = [cluster.name for cluster in pipeline._known_clusters()]
            pipeline.run()
            losses[name] = [row["actor_train/loss"] for row in pipeline.state.log_history]
    assert roles == {"own": ["actor_train"], "role": ["actor_train", "reference"]}
    assert losses["own"] == pytest.approx(losses["role"], abs=1e-6)
    assert losses["own"][0] == pytest.approx(math.log(2), abs=1e-6)
    assert losses["own"][-1] < losses["own"][0] - 1e-3


def test_pairs_that_fill_no_whole_micro_batch_are_padded_without_a_trace(tmp_path: Path) -> None:
    config = configuration(tmp_path, micro=4)
    with DPOPipeline(config) as pipeline:
        three = pipeline.training[:3]
        batch = pipeline.batch(three, pipeline.reference_scores.of(three), kl=0.0, step=0)
        assert len(batch) == 4
        metrics = pipeline.actor_train.train_step(batch).meta_info["metrics"]
    loss, _ = plain_step(config, list(three))
    assert float(metrics["actor_train/loss"]) == pytest.approx(loss, abs=1e-6)
    assert metrics["actor_train/margin"].value == pytest.approx(0.0, abs=1e-6)


def test_the_first_step_of_a_policy_that_is_its_reference_costs_what_the_formula_says(tmp_path: Path) -> None:
    (first,) = run(configuration(tmp_path, loss="sigmoid", label_smoothing=0.2))
    assert first["actor_train/loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert first["actor_train/margin"] == pytest.approx(0.0, abs=1e-6)


def test_kto_learns_from_single_answers_and_measures_the_divergence_anew_at_each_step(tmp_path: Path) -> None:
    config = configuration(tmp_path, loss="kto", steps=4, desirable_weight=2.0)
    rows = [{"prompt": "a", "response": "bcd"[n % 3], "label": n % 3 == 0} for n in range(6)]
    file = tmp_path / "singles.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    config.actor_train.data_args.file_name = str(file)
    history = run(config)
    # 2 of 6 answers are preferred and weigh twice; each costs half of its weight.
    assert history[0]["actor_train/loss"] == pytest.approx((2 * 2.0 + 4 * 1.0) * 0.5 / 6, abs=1e-6)
    assert history[0]["actor_train/kl"] == pytest.approx(0.0, abs=1e-6)
    assert history[-1]["actor_train/loss"] < history[0]["actor_train/loss"]
    assert history[-1]["actor_train/chosen_reward"] > history[-1]["actor_train/rejected_reward"]


def test_a_resumed_run_has_the_metrics_and_weights_of_one_that_never_stopped(tmp_path: Path) -> None:
    straight = configuration(
        tmp_path, micro=2, accumulation=2, steps=4, output_dir=str(tmp_path / "straight")
    )
    wanted = run(straight)
    first = configuration(tmp_path, micro=2, accumulation=2, steps=2)
    run(first)
    second = configuration(tmp_path, micro=2, accumulation=2, steps=4, resume_from_checkpoint=True)
    assert run(second) == wanted
    assert largest_difference(learnt(second, "actor_train"), learnt(straight, "actor_train")) == 0.0


def test_a_cached_reference_gives_the_numbers_of_one_that_is_asked_each_time(tmp_path: Path) -> None:
    asked = run(configuration(tmp_path, steps=3, output_dir=str(tmp_path / "asked")))
    cached = run(configuration(tmp_path, steps=3, cache_reference=True))
    for one, other in zip(asked, cached, strict=True):
        assert other == pytest.approx(one, abs=1e-5)


def test_the_cache_is_read_again_by_the_same_run_and_not_by_one_with_other_pairs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="roll_pipelines.dpo.reference")
    config = configuration(tmp_path, cache_reference=True, steps=2)
    run(config)
    assert not any("were read" in message for message in caplog.messages)
    config.max_steps, config.resume_from_checkpoint = 3, True
    run(config)
    assert "of 6 pairs were read from" in caplog.text
    caplog.clear()
    config.sequence_length, config.max_steps = 4, 4
    run(config)
    assert not any("were read" in message for message in caplog.messages)


def test_validation_covers_every_pair_and_learns_nothing(tmp_path: Path) -> None:
    config = configuration(
        tmp_path, steps=1, eval_steps=1, validation_files=[pairs_file(tmp_path, 5, name="held")]
    )
    with DPOPipeline(config) as pipeline:
        first, second = pipeline.validate(), pipeline.validate()
        assert len(pipeline.validation) == 5
    assert first == second
    assert first["val/loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert first["val/accuracy"] == 0.0  # equal rewards are not a preference
