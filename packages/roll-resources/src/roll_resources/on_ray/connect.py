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
        ReservationError: if Ray must outlive this process and would be started by it, or asks for a token and
            is not given it.
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
                _join(joins, namespace)
            else:
                start_ray(namespace=namespace)
            _started_here = True
        _users += 1


def _join(address: str, namespace: str) -> None:
    try:
        ray.init(address=address, namespace=namespace, logging_level=logging.WARNING)
    except ConnectionError as refused:
        error: BaseException | None = refused
        while error is not None and "InvalidAuthToken" not in str(error):
            error = error.__cause__
        if error is None:
            raise
        raise ReservationError(
            f"the Ray at {address} asks for a token and was given none, or another one: set "
            "RAY_AUTH_MODE=token and have its token in ~/.ray/auth_token or RAY_AUTH_TOKEN. `ray start` asks "
            "for one where that file exists, as a Ray that was once started for a program alone leaves it; "
            "RAY_AUTH_MODE=disabled for `ray start` and for the run does without"
        ) from refused


def disconnect() -> None:
    """Leave Ray; the last manager of a process that connected it by itself shuts the connection down."""
    global _started_here, _users
    with _lock:
        _users -= 1
        if _users == 0 and _started_here:
            _started_here = False
            ray.shutdown()
