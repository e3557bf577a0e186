"""The rows that are learnt word by word: of files, or of generated problems."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from transformers import PreTrainedTokenizerBase

from roll_pipelines.config.arguments import DataArguments
from roll_pipelines.data.corpus import Corpus, corpus_of_files, corpus_of_task
from roll_pipelines.data.lengths import LengthCount
from roll_pipelines.data.messages import messages_of
from roll_pipelines.data.order import RowOrder
from roll_pipelines.data.problems import Problem, TaskConfig
from roll_pipelines.data.sources import SourceRow
from roll_pipelines.data.supervised import EncodedRow, EncodedRows, SupervisedRow, encode_rows


class RowSource(Protocol):
    """The part of a configuration that names rows."""

    seed: int
    task: TaskConfig | None
    num_problems: int
    validation_files: list[str]
    sequence_length: int | None


@dataclass(frozen=True, slots=True)
class EncodedData:
    """The rows of a run as token ids, and the order in which they are learnt."""

    training: tuple[EncodedRow, ...]
    validation: tuple[EncodedRow, ...]
    order: RowOrder
    """Of the rows that are learnt."""
    count: LengthCount
    """What the length policy did to the rows that are learnt."""


def encoded_data(
    config: RowSource, arguments: DataArguments, tokenizer: PreTrainedTokenizerBase
) -> EncodedData:
    """Returns the rows that a configuration names as token ids, none longer than its `sequence_length`.

    Args:
        config: the configuration.
        arguments: of the role that learns.
        tokenizer: of the model that learns.

    Raises:
        DataError: a source or a row of it cannot be used.
        ValueError: the task has too few problems, or no row is left of a source.
    """
    length = config.sequence_length
    assert length is not None, "a rule of the configuration demands it"

    def encoded(rows: Sequence[SupervisedRow]) -> EncodedRows:
        found = encode_rows(
            rows,
            tokenizer,
            max_length=length,
            policy=arguments.max_length_policy,
            workers=arguments.preprocessing_num_workers,
        )
        found.count.warn(what="rows", max_length=length)
        return found

    data = supervised_data(config, arguments)
    sources = [encoded(rows) for rows in data.training]
    return EncodedData(
        training=tuple(row for source in sources for row in source.rows),
        validation=encoded(data.validation).rows if data.validation else (),
        order=RowOrder(
            [len(source.rows) for source in sources],
            seed=config.seed,
            weights=arguments.file_weights,
            shuffle=arguments.shuffle,
        ),
        count=sum((source.count for source in sources), LengthCount()),
    )


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
