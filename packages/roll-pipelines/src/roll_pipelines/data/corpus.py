"""The rows of a run: those that it learns from, and those that it is only scored on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from roll_pipelines.data.problems import (
    Problem,
    ProblemSource,
    ProblemStream,
    TaskConfig,
    held_out_problems,
)
from roll_pipelines.data.sources import SourceRow, read_rows_as

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Corpus(Generic[Row]):
    """Rows to learn from, one list a source, and rows that are only scored."""

    training: list[list[Row]]
    validation: list[Row] = field(default_factory=list)


def corpus_of_files(
    training: str | Sequence[str], validation: str | Sequence[str], parse: Callable[[SourceRow], Row]
) -> Corpus[Row]:
    """Returns the rows of sources.

    Args:
        training: sources that are learnt from; see `read_source`.
        validation: sources that are only scored.
        parse: makes one row; it raises DataError for a row that it cannot use.

    Raises:
        DataError: a source or a row of it cannot be used.
    """
    scored = [row for rows in read_rows_as(validation, parse) for row in rows]
    return Corpus(read_rows_as(training, parse), scored)


def corpus_of_task(
    task: TaskConfig, make: Callable[[list[Problem]], list[Row]], *, seed: int, count: int
) -> Corpus[Row]:
    """Returns rows made of generated problems; the held-out ones are scored and never learnt.

    Args:
        task: which problems.
        make: makes rows of problems.
        seed: the run's seed.
        count: problems to learn from.

    Raises:
        ValueError: the task has too few problems.
    """
    held_out = held_out_problems(task, seed=seed)
    source = ProblemSource(task, seed=seed)
    stream = ProblemStream(source, held_out=[problem.prompt for problem in held_out])
    return Corpus([make(stream.take(count))], make(held_out))
