"""Several trackers as one."""

import contextlib
import importlib
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from roll_pipelines.config.base_config import BaseConfig
from roll_pipelines.config.container import to_container
from roll_pipelines.config.problems import one_of
from roll_pipelines.tracking.console import ConsoleTracker
from roll_pipelines.tracking.jsonl import JsonlTracker
from roll_pipelines.tracking.tracker import Tracker

logger = logging.getLogger(__name__)


class SeveralTrackers:
    """Passes everything on to each of several trackers; a metric must be a plain number."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        """Takes the trackers, in the order in which they are told."""
        self._trackers = tuple(trackers)
        self._last = -1

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Logs one step everywhere.

        Raises:
            TypeError: a metric is no number.
            ValueError: the step was logged before.
        """
        if step <= self._last:
            raise ValueError(
                f"step {step} comes after step {self._last}: each step is logged once, in rising order"
            )
        self._last = step
        plain = {name: as_number(name, value) for name, value in metrics.items()}
        for tracker in self._trackers:
            tracker.log(plain, step=step)

    def log_text(self, name: str, text: str, *, step: int) -> None:
        """Logs a text everywhere."""
        for tracker in self._trackers:
            tracker.log_text(name, text, step=step)

    def close(self) -> None:
        """Closes all of them; one that fails does not keep the others open."""
        for tracker in self._trackers:
            try:
                tracker.close()
            except (OSError, RuntimeError) as failed:
                logger.warning("tracker %s did not close: %s", type(tracker).__name__, failed)


def as_number(name: str, value: object) -> float:
    """Returns a metric as a Python int or float.

    Args:
        name: the metric, for the error.
        value: a Python or NumPy number, or a tensor of one element.

    Raises:
        TypeError: it is none of these.

    Example:
        >>> as_number("loss", 1)
        1
    """
    if isinstance(value, int | float):
        return value
    item = getattr(value, "item", None)
    if item is not None:
        with contextlib.suppress(ValueError, RuntimeError):  # more than one element: said below
            number = item()
            if isinstance(number, int | float):
                return number
    raise TypeError(
        f"metric {name!r} must be a number, not {value!r} of type {type(value).__name__}; reduce it first"
    )


Maker = Callable[[BaseConfig, Path, int | None, Mapping[str, object]], Tracker]


def create_tracker(config: BaseConfig, *, after_step: int | None = None) -> SeveralTrackers:
    """Returns the trackers that a configuration names, writing into its run directory.

    Args:
        config: `track_with` names them, `tracker_kwargs` holds their settings by name.
        after_step: when a run is resumed, the step of its checkpoint.

    Raises:
        ValueError: a name is unknown.
    """
    names = [config.track_with] if isinstance(config.track_with, str) else config.track_with
    run_dir, trackers = config.run_dir, []
    for name in names:
        if name not in TRACKERS:
            raise ValueError(f"track_with names {name!r}; try {one_of(sorted(TRACKERS), name)}")
        trackers.append(TRACKERS[name](config, run_dir, after_step, config.tracker_kwargs.get(name, {})))
    return SeveralTrackers(trackers)


def _jsonl(
    _config: BaseConfig, run_dir: Path, after_step: int | None, _settings: Mapping[str, object]
) -> Tracker:
    return JsonlTracker(run_dir / "metrics.jsonl", after_step=after_step)


def _tensorboard(
    _config: BaseConfig, run_dir: Path, after_step: int | None, settings: Mapping[str, object]
) -> Tracker:
    from roll_pipelines.tracking.tensorboard import TensorBoardTracker

    return TensorBoardTracker(
        Path(str(settings.get("log_dir", run_dir / "tensorboard"))), after_step=after_step
    )


def _console(
    config: BaseConfig, _run_dir: Path, _after_step: int | None, settings: Mapping[str, object]
) -> Tracker:
    keys = settings.get("keys")
    shown = tuple(str(key) for key in keys) if isinstance(keys, list | tuple) else None
    return ConsoleTracker(sys.stderr, name=config.exp_name, max_steps=config.max_steps, keys=shown)


def _service(module: str, class_name: str) -> Maker:
    """The maker of a tracker whose library is an extra, imported when a run asks for it."""

    def make(
        config: BaseConfig, run_dir: Path, _after_step: int | None, settings: Mapping[str, object]
    ) -> Tracker:
        values = to_container(config)
        cls = getattr(importlib.import_module(f"roll_pipelines.tracking.{module}"), class_name)
        tracker: Tracker = cls(run_dir, name=config.exp_name, config=values, settings=settings)
        return tracker

    return make


TRACKERS: dict[str, Maker] = {
    "jsonl": _jsonl,
    "tensorboard": _tensorboard,
    "console": _console,
    "wandb": _service("wandb", "WandbTracker"),
    "swanlab": _service("swanlab", "SwanlabTracker"),
    "mlflow": _service("mlflow", "MlflowTracker"),
    "trackio": _service("trackio", "TrackioTracker"),
}
"""Every tracker by its name in `track_with`."""
