"""Starting a Ray of our own on this machine."""

import logging
import os
from typing import Any

import ray
from ray._private import ray_constants


def start_ray(**options: Any) -> None:  # Any: ray.init's own options
    """Start a Ray on this machine; its workers run in this process's own Python environment.

    A driver under ``uv run`` makes Ray start every worker by another ``uv run`` over a copy of the working
    directory, which resolves and installs again. Here all share one machine and one environment.

    Args:
        options: passed to ``ray.init``.
    """
    if "RAY_ENABLE_UV_RUN_RUNTIME_ENV" not in os.environ:
        ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV = (
            False  # Ray reads the variable at import, too early for us
        )
    ray.init(
        address="local",  # never one that somebody else has started here
        include_dashboard=False,
        logging_level=logging.WARNING,
        **options,
    )
