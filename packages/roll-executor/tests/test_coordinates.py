"""Coordinates that workers publish in ``initialize`` are checked once, and hold from its success on."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from roll_dispatch import Dispatch, TopologyError, register
from roll_executor import Cluster, Worker, WorkerConfig
from roll_resources import ResourceManager

GATE = threading.Event()
"""Lets ``initialize`` end; the local runtime has its workers in this process."""


class Publishing(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    async def initialize(self, pipeline_config: str) -> None:  # type: ignore[override]  # as a user may
        super().initialize(pipeline_config)
        await asyncio.to_thread(GATE.wait, 20)
        if pipeline_config == "clash":
            self.rank_info = self.rank_info.replace(dp_rank=0)
        else:
            self.rank_info = self.rank_info.replace(dp_rank=0, dp_size=1, tp_rank=self.rank, tp_size=2)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    GATE.clear()
    with (
        ResourceManager(runtime="local") as manager,
        Cluster("publishing", Publishing, manager, WorkerConfig(world_size=2)) as cluster,
    ):
        yield cluster
        GATE.set()


@pytest.mark.parametrize("blocking", [True, False])
def test_coordinates_that_do_not_fit_together_are_refused(cluster: Cluster, blocking: bool) -> None:
    GATE.set()

    def initialize() -> Any:
        pending = cluster.initialize("clash", blocking=blocking)
        return pending if blocking else pending.result()

    with pytest.raises(TopologyError):
        initialize()
    assert (cluster.dp_size, cluster.tp_size) == (2, 1)
    cluster.initialize("fitting")
    assert (cluster.dp_size, cluster.tp_size) == (1, 2)


def test_an_initialize_that_nobody_waits_for_tells_the_next_reader_of_its_clash(cluster: Cluster) -> None:
    GATE.set()
    cluster.initialize("clash", blocking=False)
    with pytest.raises(TopologyError):
        _ = cluster.dp_size
    assert cluster.dp_size == 2


def test_readers_wait_for_an_initialize_under_way_and_see_the_same(cluster: Cluster) -> None:
    assert cluster.tp_size == 1
    cluster.initialize("fitting", blocking=False)
    with ThreadPoolExecutor(4) as readers:
        sizes = [readers.submit(lambda: (cluster.dp_size, cluster.tp_size)) for _ in range(8)]
        GATE.set()
        assert {size.result(20) for size in sizes} == {(1, 2)}
