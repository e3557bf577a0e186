"""Metrics as one JSON object a line."""

import json
import math
from collections.abc import Mapping
from pathlib import Path


class JsonlTracker:
    """Appends each step to a file as one JSON object with `step` and the metrics."""

    def __init__(self, path: Path, *, after_step: int | None = None) -> None:
        """Opens the file for appending.

        Args:
            path: the file.
            after_step: in a resumed run, the step of its checkpoint: later lines are dropped and logged anew.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            _cut(path, after_step)
        self._file = path.open("a", encoding="utf-8")

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Appends one line; numbers that JSON does not have (nan, inf) are written as null."""
        row = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self._file.write(json.dumps({"step": step, **row}) + "\n")
        self._file.flush()

    def log_text(self, name: str, text: str, *, step: int) -> None:
        """Does nothing: texts stand in the report, and every line here is a row of numbers."""

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, float | None]]:
    """Returns the rows of a metrics file, without a last line that was cut off by a crash.

    Args:
        path: the file that `JsonlTracker` wrote.

    Example:
        >>> read_metrics(Path("no-such-file"))
        []
    """
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def _cut(path: Path, after_step: int | None) -> None:
    kept = [row for row in read_metrics(path) if after_step is not None and (row["step"] or 0) <= after_step]
    staged = path.with_suffix(".tmp")
    staged.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    staged.replace(path)
