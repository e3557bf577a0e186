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

    With a chat template, a prompt is what a user says, and a response what an assistant answers.

    Args:
        config: the configuration.
        arguments: of the role that learns.

    Raises:
        DataError: a source or a row of it cannot be used.
        ValueError: the task has too few problems.
    """

    def as_asked(row: SupervisedRow) -> SupervisedRow:
        return row if arguments.template is None else talk_of(row)

    if config.task is not None:

        def make(problems: list[Problem]) -> list[SupervisedRow]:
            return [as_asked(row) for row in rows_of(problems)]

        return corpus_of_task(config.task, make, seed=config.seed, count=config.num_problems)
    prompt, response = arguments.prompt or "prompt", arguments.response or "response"

    def parse(row: SourceRow) -> SupervisedRow:
        if arguments.messages is not None:
            return SupervisedRow(messages=tuple(messages_of(row, arguments.messages)))
        return as_asked(SupervisedRow(row.text(prompt), row.text(response)))

    return corpus_of_files(arguments.file_name or [], config.validation_files, parse)


def talk_of(row: SupervisedRow) -> SupervisedRow:
    """Returns a prompt and its response as a conversation of two messages."""
    said = (("user", row.prompt), ("assistant", row.response))
    return SupervisedRow(messages=tuple({"role": role, "content": text} for role, text in said))


def rows_of(problems: list[Problem]) -> list[SupervisedRow]:
    """Returns problems as rows whose response is the right answer."""
    return [SupervisedRow(problem.prompt, problem.answer) for problem in problems]
