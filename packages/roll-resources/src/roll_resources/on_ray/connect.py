"""Connecting to Ray: join the one that is named, or start one and stop it afterwards."""

import logging
import os
import threading

import ray
from ray._private import ray_logging

from roll_resources.errors import ReservationError
from roll_resources.on_ray.start import start_ray

logger = logging.getLogger(__name__)

_lock = threading.Lock()
_started_here = False
_users = 0


def connect(*, address: str | None, namespace: str, outlives: bool = False) -> None:
    """Connect this process to the Ray at an address or at RAY_ADDRESS, or to its own, started here.

    Args:
        address: the Ray to join; None: see above.
        namespace: of the actors.
        outlives: whether what is reserved shall outlive this process, and so must Ray.

    Raises:
        ReservationError: if Ray must outlive this process and would be started by it.
    """
    global _started_here, _users
    # A line that two ranks write shall be two lines. Ray has read its variable when it was imported.
    if os.environ.get("RAY_DEDUP_LOGS", "0") == "0":
        setattr(ray_logging, "RAY_DEDUP_LOGS", False)  # noqa: B010  # mypy takes it for an import of Ray's own
    with _lock:
        if not ray.is_initialized():
            joins = address or os.environ.get("RAY_ADDRESS")
            if outlives and not joins:
                raise ReservationError(
                    "a ResourceManager with a name needs a Ray that outlives this process: "
                    "give address=, or set RAY_ADDRESS"
                )
            logger.info("%s", f"joining Ray at {joins}" if joins else "starting Ray on this machine")
            if joins:
                ray.init(address=joins, namespace=namespace, logging_level=logging.WARNING)
            else:
                start_ray(namespace=namespace)
            _started_here = True
        _users += 1


def disconnect() -> None:
    """Leave Ray; the last manager of a process that connected it by itself shuts the connection down."""
    global _started_here, _users
    with _lock:
        _users -= 1
        if _users == 0 and _started_here:
            _started_here = False
            ray.shutdown()
