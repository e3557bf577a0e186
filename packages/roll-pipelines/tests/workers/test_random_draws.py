"""What workers draw depends on the run's seed, their role and their rank, and on nobody beside them."""

import random
from typing import Literal

import pytest
import torch

from roll_dispatch import Dispatch, register
from roll_executor import Cluster
from roll_pipelines import BaseConfig, WorkerConfig
from roll_pipelines.workers import Worker
from roll_resources import ResourceManager


class Drawer(Worker):
    """Draws numbers, so many in each call."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config: BaseConfig) -> None:
        super().initialize(pipeline_config)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def draw(self, count: int) -> list[float]:
        dropped = torch.nn.functional.dropout(torch.ones(count), 0.5)
        return (torch.rand(count) + dropped).tolist()


def drawn(
    *,
    workers: int,
    seed: int = 0,
    name: str = "drawer",
    calls: int = 3,
    runtime: Literal["local", "ray"] = "local",
) -> list[list[float]]:
    """Returns what each worker draws in several calls, one list a worker."""
    with (
        ResourceManager(runtime=runtime) as manager,
        Cluster(name, Drawer, manager, WorkerConfig(world_size=workers)) as cluster,
        Cluster("neighbour", Drawer, manager, WorkerConfig(world_size=1)) as neighbour,
    ):
        for each in (cluster, neighbour):
            each.initialize(pipeline_config=BaseConfig(seed=seed))
        found: list[list[float]] = [[] for _ in range(workers)]
        for count in range(2, 2 + calls):
            for rank, numbers in enumerate(cluster.draw(count)):
                found[rank] += numbers
            neighbour.draw(count)
            torch.rand(count)  # the driver draws, too
    return found


def test_two_workers_in_one_process_draw_apart_and_again_the_same() -> None:
    first = drawn(workers=2)
    assert first[0] != first[1]
    assert drawn(workers=2) == first


def test_a_worker_draws_the_same_alone_and_beside_a_peer() -> None:
    assert drawn(workers=1)[0] == drawn(workers=2)[0]


@pytest.mark.ray
def test_processes_of_their_own_draw_what_workers_of_one_process_draw(ray_session: str) -> None:
    assert drawn(workers=2, runtime="ray") == drawn(workers=2)


def test_another_seed_or_role_draws_other_numbers() -> None:
    found = drawn(workers=1)
    assert drawn(workers=1, seed=1) != found
    assert drawn(workers=1, name="other") != found


def test_workers_leave_the_draws_of_the_driver_alone() -> None:
    torch.manual_seed(3)
    random.seed(3)
    expected = torch.rand(4), random.random()
    torch.manual_seed(3)
    random.seed(3)
    with (
        ResourceManager(runtime="local") as manager,
        Cluster("drawer", Drawer, manager, WorkerConfig(world_size=1)) as cluster,
    ):
        cluster.initialize(pipeline_config=BaseConfig())
        cluster.draw(5)
    assert torch.equal(torch.rand(4), expected[0])
    assert random.random() == expected[1]
