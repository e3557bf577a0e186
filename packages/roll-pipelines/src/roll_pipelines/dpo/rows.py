"""The pairs that preference training learns from and those that it is scored on."""

from collections.abc import Sequence

from roll_pipelines.data.corpus import Corpus, corpus_of_files, corpus_of_task
from roll_pipelines.data.pairs import PairColumns, PreferencePair, parse_pair
from roll_pipelines.data.problems import Problem
from roll_pipelines.data.sources import SourceRow
from roll_pipelines.dpo.config import DPOConfig


def pair_data(config: DPOConfig) -> Corpus[PreferencePair]:
    """Returns the pairs that a configuration names.

    Args:
        config: the configuration.

    Raises:
        ValueError: a source or a row of it cannot be used, or the task has too few problems.
    """
    if config.task is not None:
        return corpus_of_task(config.task, pairs_of, seed=config.seed, count=config.num_problems)
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

    return corpus_of_files(arguments.file_name or [], config.validation_files, parse)


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
