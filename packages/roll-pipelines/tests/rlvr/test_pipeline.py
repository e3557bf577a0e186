"""The whole RLVR pipeline in this process, small: the same road as on Ray, where a debugger works."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from roll_pipelines.config import WorkerConfig
from roll_pipelines.config.arguments import (
    GeneratingArguments,
    ModelArguments,
    StrategyArguments,
    TrainingArguments,
)
from roll_pipelines.data import TaskConfig, TinyModelConfig
from roll_pipelines.rlvr import RewardConfig, RLVRConfig, RLVRPipeline, WarmUpConfig
from roll_pipelines.rlvr.config import ValidationConfig


def role(engine: str, **changes: object) -> WorkerConfig:
    made = WorkerConfig(
        strategy_args=StrategyArguments(strategy_name=engine),
        training_args=TrainingArguments(learning_rate=1e-3, per_device_train_batch_size=8),
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # fields of several types


def small(directory: Path, **changes: object) -> RLVRConfig:
    """A run of few steps on few problems."""
    warm_up = WarmUpConfig(steps=2, strategy_args=StrategyArguments(strategy_name="fsdp2_train"))
    config = RLVRConfig(
        runtime="local",
        output_dir=str(directory),
        track_with="jsonl",
        seed=3,
        max_steps=4,
        save_steps=2,
        eval_steps=2,
        tiny_model=TinyModelConfig(alphabet="abcdefghijklmnopqrstuvwxyz=", hidden_size=16, num_layers=1),
        task=TaskConfig(
            args={"min_word_len": 3, "max_word_len": 3}, prompt_template="{word}=", num_held_out=6
        ),
        prompt_length=5,
        response_length=4,
        rollout_batch_size=4,
        kl_loss_coef=0.01,
        validation=ValidationConfig(num_samples=2, num_shown=2),
        warm_up=warm_up,
        actor_train=role("fsdp2_train"),
        actor_infer=role("hf_infer", generating_args=GeneratingArguments(num_return_sequences=4)),
        reference=role("hf_infer"),
        reward=RewardConfig(reward_args={"task": "spell_backward", "partial_credit": True}),
    )
    return replace(config, **changes)  # type: ignore[arg-type]  # fields of several types


def ran(config: RLVRConfig) -> list[dict[str, Any]]:  # Any: JSON
    """Runs a configuration and returns its metrics without times."""
    with RLVRPipeline(config) as pipeline:
        pipeline.run()
    lines = (Path(config.output_dir) / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [untimed(row) for row in rows]


def untimed(row: dict[str, Any]) -> dict[str, Any]:  # Any: JSON
    """Returns the metrics of a step without times."""
    return {name: value for name, value in row.items() if not name.startswith(("time/", "model_update/"))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A run of four steps."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    return directory, ran(small(directory))


def test_two_runs_with_one_seed_have_the_same_metrics_to_the_last_digit(
    whole: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    assert ran(small(tmp_path / "again")) == whole[1]
    assert ran(small(tmp_path / "other", seed=4)) != whole[1]


def test_a_run_resumed_after_two_steps_has_the_metrics_and_weights_of_one_that_never_stopped(
    whole: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    directory = tmp_path / "halves"
    ran(small(directory, max_steps=2, eval_steps=0))
    shutil.rmtree(directory / "tiny_model")  # a resumed run starts from the warmed-up model or not at all
    resumed = ran(small(directory, resume_from_checkpoint=True))
    evaluated = ("eval/accuracy", "eval/greedy_accuracy")
    assert [{k: v for k, v in row.items() if k not in evaluated} for row in resumed] == [
        {k: v for k, v in row.items() if k not in evaluated} for row in whole[1]
    ]
    first, second = (
        AutoModelForCausalLM.from_pretrained(
            folder / "checkpoints" / "checkpoint-3" / "actor_train"
        ).state_dict()
        for folder in (directory, whole[0])
    )
    assert all(torch.equal(first[name], second[name]) for name in second)


def test_the_run_directory_holds_what_the_documentation_says(
    whole: tuple[Path, list[dict[str, Any]]],
) -> None:
    directory, metrics = whole
    summary = json.loads((directory / "summary.json").read_text())
    assert {"eval_accuracy_before_rl", "eval_accuracy_after_rl", "steps", "seconds"} <= set(summary)
    assert summary["steps"] == 4
    assert [row["step"] for row in metrics] == [0, 1, 2, 3]
    assert {"before", "after"} == set(json.loads((directory / "samples.json").read_text()))


def test_weights_change_and_the_engine_answers_with_the_new_ones(
    whole: tuple[Path, list[dict[str, Any]]],
) -> None:
    assert all(row["rollout/train_infer_difference"] < 1e-5 for row in whole[1])
    losses = [row["actor_train/ref_kl"] for row in whole[1]]
    assert losses[-1] > 0


def test_the_configuration_that_the_user_holds_is_not_changed(tmp_path: Path) -> None:
    config = small(tmp_path / "run", max_steps=1, eval_steps=0, warm_up=WarmUpConfig(), kl_loss_coef=0.0)
    before = repr(config)
    with RLVRPipeline(config) as pipeline:
        assert pipeline.reference is None
        pipeline.run()
    assert repr(config) == before


def test_a_model_directory_may_be_named_instead_of_the_tiny_one(
    whole: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    named = small(
        tmp_path / "run", tiny_model=None, pretrain=str(whole[0] / "warm_up"), warm_up=WarmUpConfig()
    )
    assert ran(named)[0]["rollout/reward"] == whole[1][0]["rollout/reward"]


def test_a_policy_with_an_adapter_is_its_own_reference(tmp_path: Path) -> None:
    found = {}
    for name, reference in {"own": WorkerConfig(), "role": role("hf_infer")}.items():
        config = small(
            tmp_path / name,
            actor_train=role("fsdp2_train", model_args=ModelArguments(lora_rank=2)),
            reference=reference,
            warm_up=WarmUpConfig(),
            eval_steps=0,
            kl_loss_coef=0.5,
        )
        found[name] = ran(config)
    for own, other in zip(found["own"], found["role"], strict=True):
        assert own == pytest.approx(other, abs=1e-5)
    assert found["own"][-1]["actor_train/ref_kl"] > 0


def test_roles_that_take_turns_on_the_machine_give_the_same_numbers(
    whole: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    config = small(tmp_path / "run", is_offload_states=True)
    with RLVRPipeline(config) as pipeline:
        pipeline.run()
        calls = {
            cluster.name: cluster.stats()["offload_states"].count
            for cluster in (pipeline.actor_train, pipeline.actor_infer, pipeline.reference)
            if cluster is not None
        }
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [untimed(row) for row in rows] == whole[1]
    assert set(calls) == {"actor_train", "actor_infer", "reference"}
    assert min(calls.values()) >= 4  # once a step at least
