"""Connecting to Ray: join the one that is named, or start one and stop it afterwards."""

import logging
import os
import threading

import ray

from roll_resources.on_ray.start import start_ray

logger = logging.getLogger(__name__)

_lock = threading.Lock()
_started_here = False
_users = 0


def connect(*, address: str | None, namespace: str) -> None:
    """Connect this process to the Ray at an address or at RAY_ADDRESS, or to its own, started here."""
    global _started_here, _users
    with _lock:
        if not ray.is_initialized():
            joins = address or os.environ.get("RAY_ADDRESS")
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
