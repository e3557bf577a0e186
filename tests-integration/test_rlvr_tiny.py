"""The main job: reinforcement learning on Ray, started as a user starts it."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import runs
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from roll_pipelines.config.load import load_config
from roll_pipelines.data import held_out_problems
from roll_pipelines.rlvr import RLVRConfig

EXAMPLE: Path = runs.EXAMPLES / "rlvr_tiny.yaml"
SMALL = (
    "warm_up.steps=0",
    "kl_loss_coef=0.0",
    "rollout_batch_size=4",
    "task.num_held_out=8",
    "validation.num_samples=1",
    "eval_steps=0",
)
"""The same road with few problems, without warm-up and reference."""
pytestmark = [pytest.mark.ray, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def seed_0(tmp_path_factory: pytest.TempPathFactory) -> Any:  # Any: runs.Finished
    """The example as it stands."""
    return runs.run("run", EXAMPLE, tmp_path_factory.mktemp("rlvr") / "run", timeout_s=900)


def rise(finished: Any) -> float:  # Any: runs.Finished
    """Returns by how much reinforcement learning alone raised the accuracy on held-out problems."""
    assert finished.code == 0, finished.output[-4000:]
    summary = finished.summary()
    return float(summary["eval_accuracy_after_rl"] - summary["eval_accuracy_before_rl"])


def test_accuracy_on_held_out_problems_rises_during_reinforcement_learning(seed_0: Any) -> None:
    assert rise(seed_0) >= 0.30
    summary = seed_0.summary()
    assert summary["steps"] == 100
    assert summary["seconds"] > 0
    assert summary["eval_greedy_accuracy_after_rl"] > summary["eval_greedy_accuracy_before_rl"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_accuracy_rises_for_other_seeds(tmp_path: Path, seed: int) -> None:
    assert rise(runs.run("run", EXAMPLE, tmp_path / "run", f"seed={seed}", timeout_s=900)) >= 0.30


def test_a_line_a_step_says_how_it_goes(seed_0: Any) -> None:
    lines = [line for line in seed_0.output.splitlines() if line.startswith("step ")]
    assert len(lines) == 100
    for word in ("rollout/reward=", "time/tokens_per_second=", "time/step_seconds="):
        assert all(word in line for line in lines), lines[0]


def test_metrics_are_one_object_a_step_and_a_tensorboard_file(seed_0: Any) -> None:
    assert [row["step"] for row in seed_0.metrics()] == list(range(100))
    assert list(seed_0.directory.glob("tensorboard/events*"))


def test_the_checkpoint_loads_with_transformers_and_is_as_accurate_as_the_summary_says(seed_0: Any) -> None:
    folder = seed_0.checkpoint() / "actor_train"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    config = load_config(EXAMPLE).config
    assert isinstance(config, RLVRConfig)
    right = 0
    for problem in held_out_problems(config.task, seed=config.seed):
        ids = list(tokenizer(problem.prompt).input_ids)
        prompt = len(ids)
        while len(ids) < prompt + 6 and ids[-1] != tokenizer.eos_token_id:
            with torch.no_grad():
                ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        right += tokenizer.decode(ids[prompt:], skip_special_tokens=True) == problem.answer.lower()
    assert right / 200 == pytest.approx(seed_0.summary()["eval_greedy_accuracy_after_rl"], abs=0.011)


def test_the_report_shows_curves_and_answers_before_and_after(seed_0: Any) -> None:
    page = (seed_0.directory / "report.html").read_text()
    for part in ("rollout/reward", "eval/accuracy", "Before", "After", "<svg"):
        assert part in page


def test_every_step_sends_weights_that_the_engine_then_answers_with(seed_0: Any) -> None:
    # On the tokens that were just drawn, the trained policy and the engine agree: the ratio starts at 1.
    rows = seed_0.metrics()
    assert all(row["model_update/actor_train_2_actor_infer/bytes"] > 0 for row in rows)
    assert max(row["rollout/train_infer_difference"] for row in rows) < 1e-4


def test_two_runs_have_the_same_metrics_and_a_resumed_one_too(tmp_path: Path) -> None:
    overrides = (*SMALL[2:], "warm_up.steps=2")
    whole = runs.run("run", EXAMPLE, tmp_path / "whole", *overrides, "max_steps=4")
    assert whole.code == 0, whole.output[-4000:]
    halves = runs.run("run", EXAMPLE, tmp_path / "halves", *overrides, "max_steps=2")
    assert halves.code == 0, halves.output[-4000:]
    assert halves.untimed() == whole.untimed()[:2]
    resumed = runs.run("resume", halves.directory, halves.directory, "max_steps=4")
    assert resumed.code == 0, resumed.output[-4000:]
    assert resumed.untimed() == whole.untimed()
    found, expected = resumed.summary(), whole.summary()
    for name in (name for name in expected if name.startswith("eval_")):
        assert found[name] == expected[name]


def test_ctrl_c_ends_within_seconds_leaves_nothing_behind_and_a_checkpoint_that_loads(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with runs.start("run", EXAMPLE, directory, *SMALL, "max_steps=500", "save_steps=1") as process:
        seen: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            seen.append(line)
            if line.startswith("step 1 "):
                break
        children = psutil.Process(process.pid).children(recursive=True)
        assert children, "".join(seen)
        started = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: driver, Ray and workers
        output = process.stdout.read()  # until the last process that could write has ended
        process.wait(timeout=60)
        assert time.monotonic() - started < 30
    assert process.returncode == 130, output
    assert "stopped by Ctrl-C" in output
    _, alive = psutil.wait_procs(children, timeout=15)
    assert alive == []
    newest = runs.Finished(directory, 130, output).checkpoint()
    AutoModelForCausalLM.from_pretrained(newest / "actor_train")


def test_sigterm_ends_a_run_that_is_still_starting(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with runs.start("run", EXAMPLE, directory, *SMALL, "max_steps=500") as process:
        seen: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            seen.append(line)
            if "start workers: " in line:
                break
        process.terminate()
        output = "".join(seen) + process.stdout.read()
        process.wait(timeout=60)
    assert process.returncode == 143, output
    assert "stopped by SIGTERM" in output
    assert runs.alive(directory) == []


def test_a_worker_that_raises_ends_the_run_and_leaves_a_checkpoint_that_loads(tmp_path: Path) -> None:
    (tmp_path / "judging.py").write_text(
        "def fails_later(reward_args):\n"
        "    seen = []\n"
        "    def reward(answered):\n"
        "        seen.append(answered)\n"
        "        if len(seen) > 200:\n"
        "            raise RuntimeError('the judge has had enough')\n"
        "        return 0.0\n"
        "    return reward\n"
    )
    overrides = ("reward.reward_fn='judging:fails_later'", "max_steps=500", "save_steps=1")
    finished = runs.run("run", EXAMPLE, tmp_path / "run", *SMALL, *overrides)
    assert finished.code == 1, finished.output[-4000:]
    assert "the judge has had enough" in finished.output
    assert "reward-0.compute_rewards" in finished.output
    AutoModelForCausalLM.from_pretrained(finished.checkpoint() / "actor_train")
    assert runs.alive(tmp_path / "run") == []
