"""What happens to rows that are too long: dropped or shortened, and counted."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

logger = logging.getLogger(__name__)

LengthPolicy = Literal["drop", "truncate_left", "truncate_right"]

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fitted:
    """A prompt and its answers, each short enough to stand behind the prompt."""

    prompt_ids: Ids
    answers: tuple[Ids, ...]


@dataclass(slots=True)
class LengthCount:
    """How many rows a length policy left as they were, shortened and dropped."""

    kept: int = 0
    truncated: int = 0
    dropped: int = 0

    def __add__(self, other: "LengthCount") -> "LengthCount":
        """Returns the counts of both together."""
        return LengthCount(
            self.kept + other.kept, self.truncated + other.truncated, self.dropped + other.dropped
        )

    def warn(self, *, what: str, max_length: int) -> None:
        """Says how many rows did not stay as they were, if any.

        Args:
            what: a name for the rows.
            max_length: most tokens of a row.
        """
        if self.dropped or self.truncated:
            total = self.kept + self.truncated + self.dropped
            logger.warning(
                "of %d %s, %d were dropped and %d shortened to fit sequence_length %d",
                total, what, self.dropped, self.truncated, max_length,
            )  # fmt: skip

    def metrics(self, prefix: str = "data") -> dict[str, float]:
        """Returns the three numbers as metrics.

        Args:
            prefix: stands before each name.
        """
        return {
            f"{prefix}/rows_kept": float(self.kept),
            f"{prefix}/rows_truncated": float(self.truncated),
            f"{prefix}/rows_dropped": float(self.dropped),
        }


def fit(
    prompt_ids: Sequence[int],
    answers: Sequence[Sequence[int]],
    *,
    max_length: int,
    policy: LengthPolicy,
    count: LengthCount,
) -> Fitted | None:
    """Returns a prompt and its answers so that the prompt with any of them fits `max_length` tokens.

    All answers keep one prompt: `truncate_left` takes from the prompt's start what the longest answer
    needs, and shortens an answer only when one token of the prompt is left. `truncate_right` takes from
    each answer's end. A row of which an answer has no token left is dropped; an answer that was empty
    before is not missed.

    Args:
        prompt_ids: tokens of the prompt.
        answers: tokens of each answer.
        max_length: most tokens of the prompt and one answer.
        policy: what to do with a row that is longer.
        count: where the row is counted.

    Returns:
        The row, or None when it is dropped.

    Example:
        >>> fit([1, 2, 3], [[4, 5], [6]], max_length=4, policy="truncate_left", count=LengthCount())
        Fitted(prompt_ids=(2, 3), answers=((4, 5), (6,)))
    """
    longest = max((len(answer) for answer in answers), default=0)
    excess = len(prompt_ids) + longest - max_length
    if excess <= 0:
        count.kept += 1
        return Fitted(tuple(prompt_ids), tuple(tuple(answer) for answer in answers))
    if policy == "drop":
        count.dropped += 1
        return None
    cut = min(excess, max(0, len(prompt_ids) - 1)) if policy == "truncate_left" else 0
    prompt = tuple(prompt_ids[cut:])
    room = max(0, max_length - len(prompt))
    if policy == "truncate_left":
        fitted = tuple(tuple(answer[max(0, len(answer) - room) :]) for answer in answers)
    else:
        fitted = tuple(tuple(answer[:room]) for answer in answers)
    if any(answer and not short for answer, short in zip(answers, fitted, strict=True)):
        count.dropped += 1
        return None
    count.truncated += 1
    return Fitted(prompt, fitted)
