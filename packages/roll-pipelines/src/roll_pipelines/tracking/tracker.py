"""What a tracker is: a place that gets each step's metrics once."""

from collections.abc import Mapping
from typing import Protocol


class Tracker(Protocol):
    """A destination of metrics."""

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Takes one step's reduced metrics.

        Args:
            metrics: plain numbers by name, such as `rlvr/reward_mean`.
            step: the step that they belong to; each step is logged once, in rising order.
        """
        ...

    def log_text(self, name: str, text: str, *, step: int) -> None:
        """Takes a text, such as a few sample answers.

        Args:
            name: what the text is.
            text: the text, in Markdown.
            step: the step that it belongs to.
        """
        ...

    def close(self) -> None:
        """Writes what is still pending and lets go of files and connections; may be called twice."""
        ...
