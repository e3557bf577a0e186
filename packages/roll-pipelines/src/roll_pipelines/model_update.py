"""Weights on their way from one role to another."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from roll_executor import Cluster


class ModelUpdateError(RuntimeError):
    """Weights could not be sent from one role to another."""


@dataclass(frozen=True, kw_only=True)
class ModelUpdatePair:
    """A role that learns, a role that generates with what it has learnt, and how often weights go over.

    Registered methods that the two roles must have: `setup_model_update(name, transport)` and
    `start_model_update(name, version)` on the source, `process_weights_after_loading()` on the target.
    """

    src_cluster: Cluster
    tgt_cluster: Cluster
    frequency: int = 1

    @property
    def name(self) -> str:
        """The pair's name in metrics and messages."""
        return f"{self.src_cluster.name}_2_{self.tgt_cluster.name}"

    def setup(self) -> None:
        """Hands the way to the target's workers to every worker of the source."""
        self.src_cluster.setup_model_update(name=self.name, transport=self.tgt_cluster.transport())

    def is_due(self, global_step: int) -> bool:
        """Returns whether weights go over at this step."""
        return global_step % self.frequency == 0

    def send(self, *, version: int) -> dict[str, float]:
        """Sends the source's weights and returns seconds, bytes and whatever else the engine measured.

        Args:
            version: the number of this set of weights, rising.
        """
        started = time.perf_counter()
        reports = self.src_cluster.start_model_update(name=self.name, version=version)
        self.tgt_cluster.process_weights_after_loading()
        metrics = _largest(reports if isinstance(reports, list) else [reports])
        metrics["seconds"] = time.perf_counter() - started
        return {f"model_update/{self.name}/{key}": value for key, value in metrics.items()}


def _largest(reports: list[object]) -> dict[str, float]:
    """All ranks take part in one transfer; the slowest rank and the one that sends say how it went."""
    metrics: dict[str, float] = {}
    for report in reports:
        if isinstance(report, Mapping):
            for key, value in report.items():
                metrics[key] = max(metrics.get(key, float("-inf")), float(value))
    return metrics
