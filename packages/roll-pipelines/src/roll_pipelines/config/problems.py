"""What is wrong with a configuration, said once for everything that is wrong."""

import difflib
import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong with a configuration."""

    path: str
    """Where it stands in the YAML, such as `actor_train.strategy_args.strategy_name`."""
    rule: str
    """What must hold there, as a sentence."""
    value: object = None
    """What was found."""
    hint: str | None = None
    """The way out: the nearest valid name, or what to write instead."""
    file: str | None = None
    """The file or `command line` that set the value."""
    line: int | None = None
    """The line in that file, counted from 1."""

    def at(self, *, file: str | None, line: int | None) -> "Problem":
        """Returns the same problem with the place where the value was written."""
        return replace(self, file=file, line=line)

    def render(self) -> str:
        """Returns the problem as an indented block of text.

        Example:
            >>> print(Problem(path="max_steps", rule="must be an integer", value="ten").render())
            max_steps
              value: 'ten'
              rule:  must be an integer
        """
        place = f"  ({self.file}:{self.line})" if self.line else f"  ({self.file})" if self.file else ""
        lines = [
            f"{self.path or '(top level)'}{place}",
            f"  value: {_SHORT.repr(self.value)}",
            f"  rule:  {self.rule}",
        ]
        if self.hint:
            lines.append(f"  try:   {self.hint}")
        return "\n".join(lines)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 120
_SHORT.maxlist, _SHORT.maxdict = 8, 6


class ConfigError(ValueError):
    """A configuration is refused; the message lists everything that is wrong with it."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        """Collects the problems of one configuration.

        Args:
            source: the name of what was checked, usually the path of the YAML.
            problems: what is wrong; at least one.
        """
        self.source = source
        self.problems = tuple(problems)
        count = len(self.problems)
        head = f"{source}: {count} problem{'s' if count != 1 else ''}"
        super().__init__("\n\n".join([head, *(problem.render() for problem in self.problems)]))

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[str, tuple[Problem, ...]]]:
        """Pickles the parts, so that the error survives a process boundary."""
        return type(self), (self.source, self.problems)


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Returns the valid name that looks most like `name`, or None when none is close.

    Args:
        name: what was written.
        valid: the names that would have been accepted.

    Example:
        >>> nearest("fsdp_train", ["fsdp2_train", "vllm"])
        'fsdp2_train'
    """
    found = difflib.get_close_matches(name, sorted(valid), n=1, cutoff=0.6)
    return found[0] if found else None


def one_of(valid: Sequence[str], written: str) -> str:
    """Returns a hint that names the nearest valid name and then all of them."""
    close = nearest(written, valid)
    listed = ", ".join(sorted(valid))
    return f"{close} (all: {listed})" if close else f"one of {listed}"
