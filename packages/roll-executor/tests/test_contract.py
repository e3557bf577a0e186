"""Both runtimes keep one contract."""

from collections.abc import Callable, Iterator

import pytest

from roll_executor import Cluster
from roll_executor.testing import CONTRACT, SHARED_CONTRACT, open_shared
from roll_resources import ResourceManager


@pytest.fixture(scope="module")
def local_cluster() -> Iterator[Cluster]:
    with ResourceManager(runtime="local") as manager, open_shared(manager) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ray_cluster(ray_session: str) -> Iterator[Cluster]:
    with ResourceManager() as manager, open_shared(manager) as cluster:
        yield cluster


@pytest.mark.parametrize("check", SHARED_CONTRACT, ids=lambda check: check.__name__)
def test_local_cluster_keeps_the_contract(check: Callable[[Cluster], None], local_cluster: Cluster) -> None:
    check(local_cluster)


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
def test_local_runtime_keeps_the_contract(check: Callable[[ResourceManager], None]) -> None:
    with ResourceManager(runtime="local") as manager:
        check(manager)


@pytest.mark.ray
@pytest.mark.parametrize("check", SHARED_CONTRACT, ids=lambda check: check.__name__)
def test_ray_cluster_keeps_the_contract(check: Callable[[Cluster], None], ray_cluster: Cluster) -> None:
    check(ray_cluster)


@pytest.mark.ray
@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
def test_ray_runtime_keeps_the_contract(check: Callable[[ResourceManager], None], ray_session: str) -> None:
    with ResourceManager() as manager:
        check(manager)
