"""The pairs that preference training learns from and those that it is scored on."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from roll_pipelines.data.pairs import PairColumns, PreferencePair, parse_pair
from roll_pipelines.data.problems import Problem, ProblemSource, ProblemStream, held_out_problems
from roll_pipelines.data.sources import SourceRow, read_rows_as
from roll_pipelines.dpo.config import DPOConfig


@dataclass(frozen=True, slots=True)
class PairData:
    """Pairs to learn from, one list a source, and pairs that are only scored."""

    training: list[list[PreferencePair]]
    validation: list[PreferencePair] = field(default_factory=list)


def pair_data(config: DPOConfig) -> PairData:
    """Returns the pairs that a configuration names.

    Args:
        config: the configuration.

    Raises:
        ValueError: a source or a row of it cannot be used, or the task has too few problems.
    """
    if config.task is not None:
        held_out = held_out_problems(config.task, seed=config.seed)
        source = ProblemSource(config.task, seed=config.seed)
        stream = ProblemStream(source, held_out=[problem.prompt for problem in held_out])
        return PairData([pairs_of(stream.take(config.num_problems))], pairs_of(held_out))
    arguments = config.actor_train.data_args
    columns = PairColumns(
        prompt=arguments.prompt or "prompt",
        chosen=config.chosen_key,
        rejected=config.rejected_key,
        response=arguments.response or "response",
    )
    singles = not config.objective().needs_pairs

    def parse(row: SourceRow) -> PreferencePair:
        return parse_pair(row, columns, singles=singles)

    scored = read_rows_as(config.validation_files, parse)
    return PairData(
        read_rows_as(arguments.file_name or [], parse), [pair for part in scored for pair in part]
    )


def pairs_of(problems: Sequence[Problem]) -> list[PreferencePair]:
    """Returns problems as pairs: the right answer, and the answer to the next problem that has another one.

    Args:
        problems: in their order.

    Raises:
        ValueError: all problems have the same answer.
    """
    answers = [problem.answer for problem in problems]
    if len({answer.lower() for answer in answers}) < 2:
        raise ValueError(
            f"{len(problems)} problems with one and the same answer make no pair; choose another task"
        )
    pairs: list[PreferencePair] = []
    for number, problem in enumerate(problems):
        other = number + 1
        while answers[other % len(answers)].lower() == problem.answer.lower():
            other += 1
        pairs.append(PreferencePair(problem.prompt, problem.answer, answers[other % len(answers)]))
    return pairs
