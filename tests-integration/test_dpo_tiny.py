"""Preference training on Ray, started as a user starts it, and its numbers on one worker and on two."""

from pathlib import Path

import pytest
import runs
from transformers import AutoModelForCausalLM, PreTrainedModel

from roll_pipelines.config import WorkerConfig
from roll_pipelines.config.arguments import StrategyArguments
from roll_pipelines.dpo import DPOConfig, DPOPipeline
from roll_pipelines.sft.config import rows_per_step
from roll_pipelines.testing import (
    largest_difference,
    learning_role,
    learnt,
    rows_file,
    run_to_end,
    tiny_model,
)

EXAMPLE: Path = runs.EXAMPLES / "dpo_tiny.yaml"
pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


def configuration(folder: Path, *, runtime: str, workers: int) -> DPOConfig:
    """Returns two steps of six pairs, out of seven of different lengths."""
    rows = [
        {"prompt": "ab"[: 1 + n % 2], "chosen": "abcde"[: 1 + n % 3], "rejected": "edcba"[: 1 + n % 4]}
        for n in range(7)
    ]
    file = rows_file(folder / "pairs.jsonl", rows)
    return DPOConfig(
        actor_train=learning_role(file, micro=6 // workers, workers=workers),
        reference=WorkerConfig(strategy_args=StrategyArguments(strategy_name="hf_infer")),
        runtime=runtime,  # type: ignore[arg-type]  # one of two words
        pretrain=tiny_model(folder / "model", alphabet="abcde"),
        output_dir=str(folder / runtime),
        track_with=[],
        sequence_length=8,
        max_steps=2,
        beta=0.5,
    )


def trained(config: DPOConfig) -> tuple[list[float], PreTrainedModel]:
    """Returns the losses of a run and the model at its end."""
    assert rows_per_step(config.actor_train) == 6
    losses = [row["actor_train/loss"] for row in run_to_end(DPOPipeline, config)]
    return losses, learnt(config, "actor_train")


def test_two_workers_on_ray_learn_what_one_in_this_process_learns(tmp_path: Path) -> None:
    alone, together = (
        trained(configuration(tmp_path, runtime=runtime, workers=workers))
        for runtime, workers in (("local", 1), ("ray", 2))
    )
    assert together[0] == pytest.approx(alone[0], abs=1e-6)
    assert largest_difference(together[1], alone[1]) < 1e-6


def test_the_example_prefers_the_right_answer_to_held_out_problems(tmp_path: Path) -> None:
    finished = runs.run("run", EXAMPLE, tmp_path / "run")
    assert finished.code == 0, finished.output[-4000:]
    summary = finished.summary()
    assert summary["val/accuracy"] >= 0.95
    assert summary["data/rows_kept"] == 4096
    assert [row["step"] for row in finished.metrics()] == list(range(100))
    AutoModelForCausalLM.from_pretrained(finished.checkpoint() / "actor_train")
