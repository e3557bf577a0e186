"""Which role worked when: the calls of each step, for the report, and how busy each role was."""

import json
import time
from collections.abc import Iterable
from pathlib import Path

from roll_executor import Cluster

KEPT_STEPS = 200
"""Steps whose calls are written down; busy shares are measured in all of them."""


class Timeline:
    """Notes the calls of one step after the other."""

    def __init__(self, path: Path) -> None:
        """Takes the file to which calls are appended."""
        self._path = path
        self._began = time.time()

    def begin(self) -> None:
        """A step begins now."""
        self._began = time.time()

    def end(self, step: int, clusters: Iterable[Cluster]) -> dict[str, float]:
        """Writes down the calls of the step that ends now, and returns how busy each role was, from 0 to 1.

        Args:
            step: the step.
            clusters: the roles.
        """
        length, busy, lines = max(time.time() - self._began, 1e-9), {}, []
        for cluster in clusters:
            spans = [span for span in cluster.spans() if span.started >= self._began]
            calls = [(s.started - self._began, s.started + s.seconds - self._began, s.method) for s in spans]
            busy[f"time/busy_share/{cluster.name}"] = min(1.0, _covered(calls) / length)
            lines += [
                {"step": step, "role": cluster.name, "method": method, "start": start, "end": end}
                for start, end, method in calls
            ]
        if step < KEPT_STEPS and lines:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
        return busy


def _covered(calls: list[tuple[float, float, str]]) -> float:
    total, reached = 0.0, 0.0
    for start, end, _ in sorted(calls):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
