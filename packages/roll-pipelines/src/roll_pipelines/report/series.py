"""The curves of a run: each metric as points, and which of them a reader wants to see first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAIN = (
    ("reward", "Reward"),
    ("accuracy", "Accuracy"),
    ("loss", "Loss"),
    ("kl", "KL divergence"),
    ("entropy", "Entropy"),
    ("response_length", "Answer length"),
    ("grad_norm", "Gradient norm"),
    ("lr", "Learning rate"),
    ("tokens_per_second", "Tokens per second"),
    ("margin", "Margin"),
)
"""Words of metric names, with what a reader calls them, in the order in which the report shows them."""

HIDDEN = ("step", "system/step")
NOT_SECONDS = ("per_second", "busy_share")
WHOLE_STEP = ("step_seconds", "step", "step_total")
"""Names under `time/` of what spans a whole step; the other ones are parts of it."""


@dataclass(frozen=True)
class Series:
    """One metric over the steps."""

    name: str
    steps: tuple[float, ...]
    values: tuple[float, ...]

    @property
    def title(self) -> str:
        """What a reader calls the metric; its own name when it is none of the usual ones."""
        return next((title for word, title in MAIN if _is(word, self.name)), self.name.rpartition("/")[2])


def read_series(rows: Sequence[Mapping[str, float | None]]) -> list[Series]:
    """Returns every metric of a run as a series, in the order in which the metrics first appear.

    Args:
        rows: the lines of `metrics.jsonl`; each has `step`.

    Example:
        >>> read_series([{"step": 0, "loss": 2.0}, {"step": 1, "loss": 1.0}])
        [Series(name='loss', steps=(0, 1), values=(2.0, 1.0))]
    """
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        step = row.get("step")
        for name, value in row.items():
            if name not in HIDDEN and step is not None and isinstance(value, int | float):
                points.setdefault(name, []).append((step, value))
    return [Series(name, *_unzipped(found)) for name, found in points.items()]


def _unzipped(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(step for step, _ in points), tuple(value for _, value in points)


def main_series(series: Sequence[Series], *, most: int = 9) -> list[Series]:
    """Returns the curves that a reader wants to see first: one for each usual metric.

    Args:
        series: all of them.
        most: how many at most; a curve that never moves is none of them.
    """
    chosen: list[Series] = []
    for word, _ in MAIN:
        matching = [entry for entry in series if _is(word, entry.name) and len(set(entry.values)) > 1]
        if matching:
            chosen.append(min(matching, key=lambda entry: (_detail(entry.name), len(entry.name))))
    return chosen[:most]


def timings(series: Sequence[Series]) -> dict[str, float]:
    """Returns the mean seconds a step of each timed part, by its name without `time/`, the longest first."""
    means = {
        entry.name.removeprefix("time/"): sum(entry.values) / len(entry.values)
        for entry in series
        if entry.name.startswith("time/") and not any(word in entry.name for word in NOT_SECONDS)
    }
    return dict(sorted(means.items(), key=lambda pair: -pair[1]))


def _is(word: str, name: str) -> bool:
    last = name.rpartition("/")[2].partition("@")[0]
    if name.startswith(("time/", "system/")) and "per_second" not in name:
        return False
    if word in ("kl", "lr", "loss"):
        return last == word or last.endswith(f"_{word}") or last.startswith(f"{word}_")
    return word in last


def _detail(name: str) -> int:
    """Spreads and extremes are details; means are what a reader looks for."""
    return sum(
        word in name for word in ("_std", "_max", "_min", "@std", "@max", "@min", "_p50", "_p99", "frac")
    )
