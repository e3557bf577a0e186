"""Metrics on the terminal: a live view, or one plain line a step when the output is no terminal."""

import time
from collections.abc import Callable, Mapping
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table

FIRST = ("reward", "accuracy", "loss", "tokens_per_second", "seconds")
"""Words of metric names that a plain line shows, in this order."""
BUSY = "time/busy_share/"
"""Starts the name of the share of a step in which a role works."""
FRAME = 6
"""Lines of a live table beside its rows, and one to stay clear of the edge."""


class ConsoleTracker:
    """Shows each step as it ends."""

    def __init__(
        self,
        stream: TextIO,
        *,
        name: str = "run",
        max_steps: int | None = None,
        keys: tuple[str, ...] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts a live view when `stream` is a terminal.

        Args:
            stream: where to write.
            name: the run's name.
            max_steps: the steps of the run, for the time that is left.
            keys: metrics to show; the usual ones (reward, accuracy, loss, tokens/s, seconds) when None.
            clock: seconds, rising.
        """
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._name, self._max_steps, self._keys, self._clock = name, max_steps, keys, clock
        self._started, self._first_step = clock(), None
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        if self._live is not None:
            self._live.start()

    _first_step: int | None

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Shows one step."""
        if self._first_step is None:  # the first step warms up, so the time left is judged by those after it
            self._first_step, self._started = step, self._clock()
        if self._live is not None:
            self._live.update(self._table(metrics, step), refresh=True)
        else:
            self._console.print(self._line(metrics, step))

    def log_text(self, name: str, text: str, *, step: int) -> None:
        """Prints a text above the live view."""
        self._console.print(f"[{name}] {text}", markup=False)

    def close(self) -> None:
        """Leaves the last state of the live view on the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _shown(self, metrics: Mapping[str, float]) -> dict[str, float]:
        if self._keys is not None:
            return {key: metrics[key] for key in self._keys if key in metrics}
        found: dict[str, float] = {}
        for word in FIRST:
            found.update(
                {k: v for k, v in metrics.items() if word in k.rpartition("/")[2] and len(found) < 8}
            )
        rest = {key: value for key, value in metrics.items() if not key.startswith(("time/", "system/"))}
        return found or dict(list(rest.items())[:6])

    def _progress(self, step: int) -> str:
        if self._max_steps is None:
            return f"step {step}"
        place = f"{step + 1}/{self._max_steps}"
        done = step - (self._first_step or 0)
        left = (self._clock() - self._started) / done * (self._max_steps - 1 - step) if done > 0 else None
        eta = f", {_duration(left)} left" if left is not None and step < self._max_steps - 1 else ""
        return f"step {step} [{place}{eta}]"

    def _line(self, metrics: Mapping[str, float], step: int) -> str:
        shown = "  ".join(f"{key}={_number(value)}" for key, value in self._shown(metrics).items())
        return f"{self._progress(step)}  {shown}"

    def _table(self, metrics: Mapping[str, float], step: int) -> Table:
        table = Table(title=f"{self._name}: {self._progress(step)}", title_justify="left", expand=False)
        table.add_column("metric")
        table.add_column("value", justify="right")
        first = self._shown(metrics)
        busy = {
            f"{key.removeprefix(BUSY)} works": f"{100 * value:.0f} % of the step"
            for key, value in metrics.items()
            if key.startswith(BUSY)
        }
        rest = {
            key: value for key, value in sorted(metrics.items()) if not key.startswith(("time/", "system/"))
        }
        for key, value in first.items():
            table.add_row(key, _number(value), style="bold")
        for role, share in busy.items():
            table.add_row(role, share)
        room = max(0, self._console.size.height - FRAME - len(first) - len(busy))
        for key in [key for key in rest if key not in first][:room]:
            table.add_row(key, _number(metrics[key]), style="dim")
        return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"
