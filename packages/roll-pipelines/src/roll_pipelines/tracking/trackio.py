"""Metrics in Trackio."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TrackioTracker:
    """Writes each step to a local dashboard of Trackio, or to a space of Hugging Face with `space_id`."""

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
            run_dir: not used: Trackio has one folder for all runs, named by `TRACKIO_DIR`.
            name: the run's name.
            config: the run's configuration.
            settings: arguments of `trackio.init`, such as `project` and `space_id`.
        """
        trackio: Any = importlib.import_module("trackio")  # Any: the library is an extra
        chosen: dict[str, Any] = {
            "project": "roll",
            "name": name,
            **settings,
        }  # Any: trackio.init's own arguments
        self._run: Any = trackio.init(config=dict(config), embed=False, **chosen)  # Any: trackio's own class
        self._library: Any = trackio  # Any: it ships no types

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Writes one step."""
        self._run.log(dict(metrics), step=step)

    def log_text(self, name: str, text: str, *, step: int) -> None:
        """Does nothing: texts stand in the report."""

    def close(self) -> None:
        """Waits until everything is written; twice does nothing."""
        run, self._run = self._run, None
        if run is not None:
            run.finish()
