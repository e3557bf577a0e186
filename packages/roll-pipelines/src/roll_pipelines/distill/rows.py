"""The rows that distillation learns from and those that it is scored on."""

from dataclasses import dataclass, field

from roll_pipelines.data.problems import ProblemSource, ProblemStream, held_out_problems
from roll_pipelines.data.sources import SourceRow, read_rows_as
from roll_pipelines.data.supervised import SupervisedRow
from roll_pipelines.distill.config import DistillConfig
from roll_pipelines.sft.rows import rows_of


@dataclass(frozen=True, slots=True)
class DistillData:
    """Rows to learn from, one list a source, and rows that are only scored."""

    training: list[list[SupervisedRow]]
    validation: list[SupervisedRow] = field(default_factory=list)


def distill_data(config: DistillConfig) -> DistillData:
    """Returns the rows that a configuration names.

    Args:
        config: the configuration.

    Raises:
        ValueError: a source or a row of it cannot be used, or the task has too few problems.
    """
    if config.task is not None:
        held_out = held_out_problems(config.task, seed=config.seed)
        source = ProblemSource(config.task, seed=config.seed)
        stream = ProblemStream(source, held_out=[problem.prompt for problem in held_out])
        return DistillData([rows_of(stream.take(config.num_problems))], rows_of(held_out))
    arguments = config.student.data_args
    prompt, response = arguments.prompt or "prompt", arguments.response or "response"

    def parse(row: SourceRow) -> SupervisedRow:
        return SupervisedRow(row.text(prompt), row.text(response))

    scored = read_rows_as(config.validation_files, parse)
    return DistillData(
        read_rows_as(arguments.file_name or [], parse), [row for part in scored for row in part]
    )
