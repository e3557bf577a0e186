"""Metrics in Weights & Biases."""

import html
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class WandbTracker:
    """Sends each step to a run of Weights & Biases, or writes it to disk in `mode: offline`."""

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
            settings: arguments of `wandb.init`, such as `project`, `entity` and `mode`.
        """
        wandb: Any = importlib.import_module("wandb")  # Any: the library is an extra
        chosen: dict[str, Any] = {
            "project": "roll",
            "name": name,
            **settings,
        }  # Any: wandb.init's own arguments
        self._run: Any = wandb.init(dir=str(run_dir), config=dict(config), **chosen)  # Any: wandb's own class
        self._text = wandb.Html

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Sends one step."""
        self._run.log(dict(metrics), step=step)

    def log_text(self, name: str, text: str, *, step: int) -> None:
        """Sends a text as a preformatted block."""
        self._run.log({name: self._text(f"<pre>{html.escape(text)}</pre>")}, step=step)

    def close(self) -> None:
        """Waits until everything is sent or written; twice does nothing."""
        run, self._run = self._run, None
        if run is not None:
            run.finish()
