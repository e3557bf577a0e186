"""Fixtures for tests that need Ray: loaded by pytest through its entry point, and light until a test asks."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def ray_session() -> Iterator[str]:
    """One Ray for all tests of a session: 16 logical CPUs, 8 pretend GPUs and one custom resource.

    Yields:
        The address of the running Ray.
    """
    from roll_executor.on_ray.session import running_ray

    with running_ray(num_cpus=16, num_gpus=8, resources={"special": 4}) as address:
        yield address
