"""The main job on Ray with vLLM as the engine that samples."""

from pathlib import Path

import pytest
import runs


@pytest.mark.timeout(900)
def test_vllm_samples_with_the_weights_of_every_step(tmp_path: Path) -> None:
    finished = runs.run(
        "run",
        runs.EXAMPLES / "rlvr_tiny.yaml",
        tmp_path / "run",
        "actor_infer.strategy_args.strategy_name=vllm",
        "actor_infer.strategy_args.strategy_config={enforce_eager: true, kv_cache_memory_bytes: 67108864}",
        "tiny_model.num_heads=2",  # heads of 32, as vLLM's kernels for a CPU want them
        "warm_up.steps=40",
        "kl_loss_coef=0.0",
        "rollout_batch_size=8",
        "eval_steps=0",
        "task.num_held_out=8",
        "max_steps=4",
        timeout_s=800,
    )
    assert finished.code == 0, finished.output[-6000:]
    rows = [row for row in finished.metrics() if "rollout/train_infer_difference" in row]
    assert len(rows) == 4
    # Stale weights would show from the second step on: each moves every log-probability by far more.
    assert max(row["rollout/train_infer_difference"] for row in rows) < 1e-4
    assert max(row["actor_train/grad_norm"] for row in rows) > 1e-2
