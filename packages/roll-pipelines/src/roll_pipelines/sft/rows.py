"""The rows that are learnt word by word: of files, or of generated problems."""

from typing import Protocol

from roll_pipelines.config.arguments import DataArguments
from roll_pipelines.data.corpus import Corpus, corpus_of_files, corpus_of_task
from roll_pipelines.data.messages import messages_of
from roll_pipelines.data.problems import Problem, TaskConfig
from roll_pipelines.data.sources import SourceRow
from roll_pipelines.data.supervised import SupervisedRow


class RowSource(Protocol):
    """The part of a configuration that names rows."""

    seed: int
    task: TaskConfig | None
    num_problems: int
    validation_files: list[str]


def supervised_data(config: RowSource, arguments: DataArguments) -> Corpus[SupervisedRow]:
    """Returns the rows that a configuration names.

    Args:
        config: the configuration.
        arguments: of the role that learns.

    Raises:
        DataError: a source or a row of it cannot be used.
        ValueError: the task has too few problems.
    """
    if config.task is not None:
        return corpus_of_task(config.task, rows_of, seed=config.seed, count=config.num_problems)
    prompt, response = arguments.prompt or "prompt", arguments.response or "response"

    def parse(row: SourceRow) -> SupervisedRow:
        if arguments.messages is not None:
            return SupervisedRow(messages=tuple(messages_of(row, arguments.messages)))
        return SupervisedRow(row.text(prompt), row.text(response))

    return corpus_of_files(arguments.file_name or [], config.validation_files, parse)


def rows_of(problems: list[Problem]) -> list[SupervisedRow]:
    """Returns problems as rows whose response is the right answer."""
    return [SupervisedRow(problem.prompt, problem.answer) for problem in problems]
