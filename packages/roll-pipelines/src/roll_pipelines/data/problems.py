"""Problems that are generated and verified by `reasoning-gym`: seeded, endless, and held out by content."""

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

HELD_OUT_OFFSET = 1_000_003
"""Problem i of seed s is drawn from the generator seeded with s + i, so other seeds must lie far away."""
STREAM_SIZE = 1_000_000


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: what is asked, a right answer, and what the verifier needs."""

    prompt: str
    """What the model reads."""
    answer: str
    """The generator's own answer."""
    entry: Mapping[str, Any]  # Any: whatever a task of reasoning-gym puts into its metadata
    """The problem as the generator made it."""


@dataclass
class TaskConfig:
    """Which problems are asked, and how they are put to the model."""

    name: str = "spell_backward"
    """Name of the task in reasoning-gym."""
    args: dict[str, Any] = field(default_factory=dict)  # Any: each task's own settings
    """Settings of the task, such as `min_word_len`."""
    prompt_template: str = "{question}"
    """The prompt; `{question}` and every name of the problem's metadata can stand in it."""
    num_held_out: int = 200
    """Problems that are never trained on and measure the accuracy."""


class ProblemSource:
    """The problems of one task and seed, by number."""

    def __init__(self, config: TaskConfig, *, seed: int) -> None:
        """Opens the task.

        Args:
            config: the task and its settings.
            seed: of the problems.

        Raises:
            ValueError: the task is unknown, or refuses its settings, or the template has an unknown name.
        """
        self.config = config
        self._dataset = open_task(config.name, config.args, seed=seed, size=STREAM_SIZE)
        self[0]

    def __len__(self) -> int:
        return STREAM_SIZE

    def __getitem__(self, number: int) -> Problem:
        entry = self._dataset[number]
        names = {**entry.get("metadata", {}), "question": entry["question"]}
        try:
            prompt = self.config.prompt_template.format(**names)
        except (KeyError, IndexError) as missing:
            raise ValueError(
                f"task.prompt_template {self.config.prompt_template!r} asks for {missing}, which "
                f"a problem of {self.config.name!r} does not have; it has {', '.join(sorted(names))}"
            ) from None
        return Problem(prompt=prompt, answer=str(entry["answer"]), entry=entry)


class ProblemStream:
    """Problems one after the other, without those that are held out; its position is one number."""

    def __init__(self, source: ProblemSource, *, held_out: Collection[str] = (), position: int = 0) -> None:
        """Starts at a position.

        Args:
            source: where problems come from.
            held_out: prompts that are left out, whichever seed they come from.
            position: number of the next problem of the source.
        """
        self._source, self._held_out = source, frozenset(held_out)
        self.position = position

    def take(self, count: int) -> list[Problem]:
        """Returns the next problems and moves on.

        Raises:
            ValueError: the source ends, because nearly every problem is held out.
        """
        taken: list[Problem] = []
        while len(taken) < count:
            if self.position >= len(self._source):
                raise ValueError(
                    f"the task has too few different problems: all are among the "
                    f"{len(self._held_out)} held-out ones; make task.num_held_out smaller or the task larger"
                )
            problem = self._source[self.position]
            self.position += 1
            if problem.prompt not in self._held_out:
                taken.append(problem)
        return taken


def held_out_problems(config: TaskConfig, *, seed: int) -> list[Problem]:
    """Returns the problems that measure accuracy: from other seeds than those of training, each prompt once.

    Args:
        config: the task; `num_held_out` says how many.
        seed: the run's seed.

    Raises:
        ValueError: the task has not that many different problems.
    """
    found: dict[str, Problem] = {}
    for problem in _first(ProblemSource(config, seed=seed + HELD_OUT_OFFSET), 100 * config.num_held_out):
        if len(found) == config.num_held_out:
            break
        found.setdefault(problem.prompt, problem)
    if len(found) < config.num_held_out:
        raise ValueError(
            f"task.num_held_out asks for {config.num_held_out} different problems, but {config.name!r} with "
            f"these settings gave only {len(found)}; ask for fewer or make the task larger"
        )
    return list(found.values())


def _first(source: ProblemSource, count: int) -> Iterator[Problem]:
    return (source[number] for number in range(min(count, len(source))))


def open_task(
    task: str, task_args: Mapping[str, Any], *, seed: int, size: int
) -> Any:  # Any: untyped library
    """Returns a data set of reasoning-gym, which has `[number]` and `score_answer(answer, entry)`.

    Args:
        task: its name.
        task_args: its settings.
        seed: of its problems.
        size: how many problems it says to have; each is made when it is asked for.

    Raises:
        ValueError: there is no such task, or it refuses the settings.
    """
    with warnings.catch_warnings():
        # Compiling one of its dependencies for the first time warns about that library's own source.
        warnings.simplefilter("ignore", SyntaxWarning)
        import reasoning_gym  # type: ignore[import-untyped]  # ships no types
        from reasoning_gym.factory import DATASETS  # type: ignore[import-untyped]  # ships no types

    if task not in DATASETS:
        from difflib import get_close_matches

        near = get_close_matches(task, DATASETS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(DATASETS))}"
        raise ValueError(f"task.name: reasoning-gym has no task {task!r}; {hint}")
    try:
        return reasoning_gym.create_dataset(task, **dict(task_args), seed=seed, size=size)
    except (TypeError, AssertionError) as refused:
        raise ValueError(f"task.args {dict(task_args)} do not suit the task {task!r}: {refused}") from refused


def entries(problems: Sequence[Problem]) -> list[Mapping[str, Any]]:  # Any: see Problem.entry
    """Returns what the verifier needs of each problem."""
    return [problem.entry for problem in problems]
