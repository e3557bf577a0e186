"""Metrics as TensorBoard event files."""

import warnings
from collections.abc import Mapping
from pathlib import Path


class TensorBoardTracker:
    """Writes scalars and texts as TensorBoard events."""

    def __init__(self, log_dir: Path, *, after_step: int | None = None) -> None:
        """Opens an event file.

        Args:
            log_dir: the directory that `tensorboard --logdir` reads.
            after_step: in a resumed run, the step of its checkpoint: later points are hidden.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tensorboard imports modules that deprecate each other
            from torch.utils.tensorboard import SummaryWriter

            purge = after_step + 1 if after_step is not None else None
            self._writer = SummaryWriter(str(log_dir), purge_step=purge)

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Writes each metric as a scalar of its own."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def log_text(self, name: str, text: str, *, step: int) -> None:
        """Writes a text."""
        self._writer.add_text(name, text, step)

    def close(self) -> None:
        """Flushes and closes the event file."""
        self._writer.close()
