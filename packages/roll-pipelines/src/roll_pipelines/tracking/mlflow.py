"""Metrics in MLflow."""

import importlib
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ALLOWED = re.compile(r"[^\w\-. :/]")
"""Characters that names in MLflow cannot have."""


class MlflowTracker:
    """Sends each step to a run of MLflow; without `tracking_uri` it is a database in the run directory."""

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
            run_dir: where the files are kept when there is no server.
            name: the run's name.
            config: the run's configuration; its top level becomes parameters.
            settings: `tracking_uri` and `experiment`.
        """
        entities: Any = importlib.import_module("mlflow.entities")  # Any: the library is an extra
        tracking: Any = importlib.import_module("mlflow.tracking")  # Any: the library is an extra
        uri = str(settings.get("tracking_uri", f"sqlite:///{run_dir / 'mlflow.db'}"))
        self._client, self._metric = tracking.MlflowClient(tracking_uri=uri), entities.Metric
        experiment = str(settings.get("experiment", "roll"))
        found = self._client.get_experiment_by_name(experiment)
        where = None if "tracking_uri" in settings else (run_dir / "mlflow").absolute().as_uri()
        identity = found.experiment_id if found else self._client.create_experiment(experiment, where)
        self._run = self._client.create_run(identity, run_name=name).info.run_id
        plain = {key: value for key, value in config.items() if isinstance(value, str | int | float | bool)}
        params = [entities.Param(key, str(value)[:500]) for key, value in plain.items()]
        self._client.log_batch(self._run, params=params[:100])
        self._open = True

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Sends one step."""
        now = int(time.time() * 1000)
        entries = [self._metric(ALLOWED.sub("_", key), value, now, step) for key, value in metrics.items()]
        self._client.log_batch(self._run, metrics=entries)

    def log_text(self, name: str, text: str, *, step: int) -> None:
        """Sends a text as a file of the run."""
        self._client.log_text(self._run, text, f"{ALLOWED.sub('_', name)}/{step}.txt")

    def close(self) -> None:
        """Ends the run; twice does nothing."""
        if self._open:
            self._open = False
            self._client.set_terminated(self._run)
