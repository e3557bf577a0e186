"""One Ray for a whole test session."""

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import ray

from roll_resources.on_ray import start_ray


@contextmanager
def running_ray(
    *, num_cpus: int, num_gpus: int = 0, resources: Mapping[str, float] | None = None
) -> Iterator[str]:
    """Start a Ray on this machine for the length of a block, or use the one that this process has.

    Yields:
        Its address.
    """
    if ray.is_initialized():
        yield ray.get_runtime_context().gcs_address
        return
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # otherwise Ray writes a token into the home directory
    # Programs that tests start join this Ray; under `uv run` theirs would be a new environment per worker.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own warnings are not about us
        start_ray(num_cpus=num_cpus, num_gpus=num_gpus, resources=dict(resources or {}), log_to_driver=False)
    try:
        yield ray.get_runtime_context().gcs_address
    finally:
        ray.shutdown()
