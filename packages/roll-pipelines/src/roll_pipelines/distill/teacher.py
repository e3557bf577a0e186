"""The teacher's model: found, or built small and taught first."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from transformers import AutoConfig, AutoTokenizer

from roll_executor import Cluster
from roll_pipelines.config import WorkerConfig
from roll_pipelines.data.problems import ProblemSource, ProblemStream, held_out_problems
from roll_pipelines.data.tiny_model import save_tiny_model
from roll_pipelines.distill.config import DistillConfig
from roll_pipelines.rlvr.warm_up import is_warmed_up, warm_up, warm_up_directory

logger = logging.getLogger(__name__)

TEACHER_OFFSET = 500_009
"""The teacher learns from problems of another seed than the student's."""


class DistillError(ValueError):
    """A teacher and a student do not fit each other."""


def teacher_weights(
    config: DistillConfig, run_dir: Path, *, start: Callable[[Mapping[str, WorkerConfig]], dict[str, Cluster]]
) -> str:
    """Returns the directory or hub name of the teacher's model.

    A tiny teacher is built below the run directory and taught; one that stands there, because the run is
    resumed, is kept.

    Args:
        config: the configuration.
        run_dir: the run directory.
        start: starts roles; used for the one that teaches the teacher, which is closed afterwards.
    """
    if config.tiny_teacher is None:
        name = config.teacher.model_args.model_name_or_path
        assert name is not None, "a rule of the configuration demands a teacher"
        return name
    directory, taught = run_dir / "tiny_teacher", run_dir / "taught"
    if not (directory / "config.json").exists():
        save_tiny_model(directory, config.tiny_teacher, seed=config.seed + TEACHER_OFFSET)
    if config.warm_up.steps == 0:
        return str(directory)
    if not is_warmed_up(taught):
        _teach(config, directory, taught, start=start)
    return str(warm_up_directory(taught))


def _teach(
    config: DistillConfig,
    directory: Path,
    taught: Path,
    *,
    start: Callable[[Mapping[str, WorkerConfig]], dict[str, Cluster]],
) -> None:
    assert config.task is not None, "a rule of the configuration demands a task"
    assert config.sequence_length is not None, "a rule of the configuration demands it"
    role = config.warm_up
    role.model_args.model_name_or_path = str(directory)
    if role.training_args.max_steps is None:
        role.training_args.max_steps = role.steps
    held_out = held_out_problems(config.task, seed=config.seed)
    source = ProblemSource(config.task, seed=config.seed + TEACHER_OFFSET)
    cluster = start({"warm_up": role})["warm_up"]
    metrics = warm_up(
        cluster,
        role,
        ProblemStream(source, held_out=[problem.prompt for problem in held_out]),
        AutoTokenizer.from_pretrained(directory),
        steps=role.steps,
        max_length=config.sequence_length,
        run_dir=taught,
    )
    cluster.close()
    logger.info("taught the teacher for %d steps, loss %.3f", role.steps, metrics["warm_up/loss"])


def shared_vocabulary(*, student: str, teacher: str) -> int | None:
    """Returns how many entries two models have in common; None when their outputs have one size.

    Args:
        student: directory or hub name.
        teacher: directory or hub name.

    Raises:
        DistillError: their tokenizers give different ids to the same token.
    """
    ours, theirs = (AutoTokenizer.from_pretrained(name).get_vocab() for name in (student, teacher))
    different = [token for token in ours if theirs.get(token) != ours[token]]
    if different or len(ours) != len(theirs):
        example = f", for example {different[0]!r}" if different else ""
        raise DistillError(
            f"student {student!r} and teacher {teacher!r} must share a tokenizer, but {len(different)} of "
            f"{len(ours)} tokens have other ids with the teacher{example}; choose models of one family"
        )
    sizes = [int(AutoConfig.from_pretrained(name).vocab_size) for name in (student, teacher)]
    return None if sizes[0] == sizes[1] else min(sizes)
