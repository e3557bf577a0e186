"""What can be wrong with where a run says that its rows come from."""

from collections.abc import Iterator, Sequence

from roll_pipelines.config.arguments import DataArguments
from roll_pipelines.config.problems import Problem
from roll_pipelines.data.order import check_weights
from roll_pipelines.data.problems import TaskConfig


def row_problems(
    arguments: DataArguments,
    *,
    role: str,
    task: TaskConfig | None,
    validation_files: Sequence[str],
    what: str = "rows",
) -> Iterator[Problem]:
    """Yields what is wrong when not exactly one of files and a task gives rows, and with weights of files.

    Args:
        arguments: of the role that learns.
        role: its name in the configuration.
        task: of the configuration.
        validation_files: of the configuration.
        what: a name for the rows.
    """
    files = arguments.file_name
    if (files is None) == (task is None):
        rule = "must be given unless a task is" if files is None else "must be left out when a task is given"
        hint = f"name {what} or a task"
        yield Problem(path=f"{role}.data_args.file_name", rule=rule, value=files, hint=hint)
    if validation_files and task is not None:
        rule = "must be left out when a task is given: its held-out problems are scored"
        yield Problem(path="validation_files", rule=rule, value=list(validation_files), hint="delete it")
    weights = arguments.file_weights
    if weights is not None and files is not None:
        count = 1 if isinstance(files, str) else len(files)
        try:
            check_weights(weights, sources=count)
        except ValueError:
            rule = f"must be {count} numbers, none negative and not all zero: one for each file"
            yield Problem(path=f"{role}.data_args.file_weights", rule=rule, value=weights)
