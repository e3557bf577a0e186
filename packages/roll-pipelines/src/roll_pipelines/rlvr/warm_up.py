"""Supervised steps before reinforcement learning: the model that all roles then start from."""

import logging
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from roll_executor import Cluster
from roll_pipelines.config import WorkerConfig
from roll_pipelines.data.problems import ProblemStream
from roll_pipelines.data.supervised import SupervisedRow, collate, encode_rows
from roll_pipelines.rollouts import pad_id
from roll_pipelines.sft.config import rows_per_step
from roll_pipelines.sft.rows import rows_of
from roll_protocol import reduce_metrics

logger = logging.getLogger(__name__)

TOLD_EVERY = 20
"""Steps between two messages."""
DONE = "done"
"""Written last, so that an interrupted warm-up is seen and done again."""


def warm_up_directory(run_dir: Path) -> Path:
    """Returns where the warmed-up model is saved."""
    return run_dir / "warm_up"


def is_warmed_up(run_dir: Path) -> bool:
    """Returns whether a whole warm-up stands in a run directory."""
    return (warm_up_directory(run_dir) / DONE).exists()


def warm_up(
    cluster: Cluster,
    role: WorkerConfig,
    stream: ProblemStream,
    tokenizer: PreTrainedTokenizerBase,
    *,
    steps: int,
    max_length: int,
    run_dir: Path,
) -> dict[str, float]:
    """Learns the right answers of `steps` batches of problems, saves the model, returns the last metrics.

    Args:
        cluster: the role that learns; initialised.
        role: its configuration.
        stream: where problems come from; they are used once each.
        tokenizer: of the model.
        steps: optimizer steps.
        max_length: most tokens of prompt and answer together.
        run_dir: the model is saved below it.
    """
    size = rows_per_step(role)
    metrics: dict[str, float] = {}
    for step in range(steps):
        rows: list[SupervisedRow] = rows_of(stream.take(size))
        encoded = encode_rows(rows, tokenizer, max_length=max_length, policy="drop")
        batch = collate(encoded.rows, pad_token_id=pad_id(tokenizer))
        metrics = reduce_metrics(cluster.train_step(batch).meta_info["metrics"])
        if (step + 1) % TOLD_EVERY == 0:
            logger.info("warm-up step %d/%d, loss %.3f", step + 1, steps, metrics[f"{cluster.name}/loss"])
    directory = warm_up_directory(run_dir)
    cluster.do_checkpoint(global_step=steps, checkpoint_dir=str(directory))
    (directory / DONE).touch()
    return metrics
