"""Bringing dead workers of a stateless role back."""

import logging
from dataclasses import dataclass
from typing import Any

from roll_dispatch import Route, Topology, plan_call
from roll_executor.host import Header
from roll_executor.sending import Part, send
from roll_executor.workers import Workers

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Initialized:
    """How ``initialize`` was called last."""

    route: Route
    args: tuple[Any, ...]  # Any: arguments of the user's own method
    kwargs: dict[str, Any]  # Any: as above

    def parts(self, topology: Topology) -> list[Part | None]:
        """Return what each rank received."""
        parts: list[Part | None] = list(plan_call(self.route, topology, self.args, self.kwargs).parts)
        return parts


def mend(workers: Workers, topology: Topology, initialized: Initialized | None, *, timeout_s: float) -> None:
    """Build dead workers anew and initialize them as their peers were.

    Raises:
        WorkerError: if one stays dead or cannot be initialized.
    """
    rebuilt = workers.revive()
    if not rebuilt:
        return
    logger.warning("restarted ranks %s of %s", rebuilt, workers.wheres[0].cluster)
    if initialized is None:
        return
    header = Header.of("initialize", initialized.route)
    parts = [part if rank in rebuilt else None for rank, part in enumerate(initialized.parts(topology))]
    workers.gather(send(workers, parts, header), (), timeout_s)
