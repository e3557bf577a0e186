"""Metrics in SwanLab."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class SwanlabTracker:
    """Sends each step to a run of SwanLab, or writes it to disk in `mode: local` or `mode: offline`."""

    def __init__(
        self,
        run_dir: Path,
        *,
        name: str,
        config: Mapping[str, object],
        settings: Mapping[str, object],
    ) -> None:
        """Starts a run.

        Args:
            run_dir: where the library keeps its files.
            name: the run's name.
            config: the run's configuration.
            settings: arguments of `swanlab.init`, such as `project`, `workspace` and `mode`.
        """
        swanlab: Any = importlib.import_module("swanlab")  # Any: the library is an extra
        defaults = {"project": "roll", "experiment_name": name, "logdir": str(run_dir / "swanlab")}
        chosen: dict[str, Any] = {**defaults, **settings}  # Any: swanlab.init's own arguments
        self._run: Any = swanlab.init(config=dict(config), **chosen)  # Any: swanlab's own class
        self._text = swanlab.Text

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Sends one step."""
        self._run.log(dict(metrics), step=step)

    def log_text(self, name: str, text: str, *, step: int) -> None:
        """Sends a text."""
        self._run.log({name: self._text(text)}, step=step)

    def close(self) -> None:
        """Waits until everything is sent or written; twice does nothing."""
        run, self._run = self._run, None
        if run is not None:
            run.finish()
