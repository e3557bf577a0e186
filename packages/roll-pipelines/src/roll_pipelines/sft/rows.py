"""The rows that supervised fine-tuning learns from and those that it is scored on."""

from dataclasses import dataclass

from roll_pipelines.data.messages import messages_of
from roll_pipelines.data.problems import Problem, ProblemSource, ProblemStream, held_out_problems
from roll_pipelines.data.sources import SourceRow, read_rows_as
from roll_pipelines.data.supervised import SupervisedRow
from roll_pipelines.sft.config import SFTConfig


@dataclass(frozen=True, slots=True)
class SupervisedData:
    """Rows to learn from, one list a source, and rows that are only scored."""

    training: list[list[SupervisedRow]]
    validation: list[SupervisedRow]


def supervised_data(config: SFTConfig) -> SupervisedData:
    """Returns the rows that a configuration names.

    Args:
        config: the configuration.

    Raises:
        DataError: a file or a row of it cannot be read.
        ValueError: the task has too few problems.
    """
    if config.task is not None:
        held_out = held_out_problems(config.task, seed=config.seed)
        stream = ProblemStream(
            ProblemSource(config.task, seed=config.seed), held_out=[problem.prompt for problem in held_out]
        )
        return SupervisedData([rows_of(stream.take(config.num_problems))], rows_of(held_out))
    arguments = config.sft_train.data_args
    prompt, response = arguments.prompt or "prompt", arguments.response or "response"

    def parse(row: SourceRow) -> SupervisedRow:
        if arguments.messages is not None:
            return SupervisedRow(messages=tuple(messages_of(row, arguments.messages)))
        return SupervisedRow(row.text(prompt), row.text(response))

    validation = [row for rows in read_rows_as(config.validation_files, parse) for row in rows]
    return SupervisedData(read_rows_as(arguments.file_name or [], parse), validation)


def rows_of(problems: list[Problem]) -> list[SupervisedRow]:
    """Returns problems as rows whose response is the right answer."""
    return [SupervisedRow(problem.prompt, problem.answer) for problem in problems]
