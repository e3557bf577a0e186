"""Starting a Ray of our own on this machine."""

import logging
import os
from typing import Any

import ray
from ray._private import ray_constants

logger = logging.getLogger(__name__)

ATTEMPTS = 3


def start_ray(**options: Any) -> None:  # Any: ray.init's own options
    """Start a Ray on this machine; its workers run in this process's own Python environment.

    A driver under ``uv run`` makes Ray start every worker by another ``uv run`` over a copy of the working
    directory, which resolves and installs again. Here all share one machine and one environment. Ray gives
    its own start half a minute, which a busy machine exceeds; it is tried again then.

    Args:
        options: passed to ``ray.init``.

    Raises:
        Exception: what ``ray.init`` raised on the last attempt.
    """
    # Ray reads the variable when it is imported, which may be before a program sets it.
    asked = os.environ.get("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0").lower()
    ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV = asked in {"1", "true"}
    # That a Ray for this program alone asks for a token is nothing to warn of.
    logging.getLogger("ray._private.authentication.authentication_token_setup").setLevel(logging.ERROR)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _init(**options)
        except Exception as error:  # Ray raises a bare Exception; all but its time-out travel on
            if "timed out during startup" not in str(error) or attempt == ATTEMPTS:
                raise
            logger.warning("Ray did not start in time, attempt %d of %d: %s", attempt, ATTEMPTS, error)
            ray.shutdown()
        else:
            return


def _init(**options: Any) -> None:  # Any: as above
    ray.init(
        address="local",  # never one that somebody else has started here
        include_dashboard=False,
        logging_level=logging.WARNING,
        # Nobody reads the metrics of a Ray that ends with its program. On a busy machine workers of Ray 2.60
        # died of a corrupted heap in one of Ray's own threads; the exporter of metrics is what we suspect.
        _system_config={"enable_metrics_collection": False},
        **options,
    )
