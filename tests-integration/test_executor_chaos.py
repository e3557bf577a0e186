"""Two hundred calls while workers are killed at random: each ends with the right rows or one typed error."""

import os
import random
import signal
import time
from typing import Any

import pytest

from roll_dispatch import Dispatch, register
from roll_executor import Cluster, Worker, WorkerConfig, WorkerError
from roll_resources import ResourceManager

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]

CALLS = 200
KILLS = 8


class Victim(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config: Any) -> None:
        super().initialize(pipeline_config)

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def scale(self, rows: list[int]) -> list[int]:
        return [row * self.pipeline_config for row in rows]

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def pid(self) -> int:
        return os.getpid()


def kill_one(cluster: Cluster, chance: random.Random) -> None:
    """Kill a worker of the cluster, whichever lives."""
    alive = [entry.where.pid for entry in cluster.health() if entry.state in ("idle", "busy")]
    if alive:
        os.kill(chance.choice(alive), signal.SIGKILL)


def test_every_call_among_random_deaths_returns_the_right_rows_or_one_typed_error(ray_session: str) -> None:
    chance = random.Random(7)
    deaths = set(chance.sample(range(10, CALLS), KILLS))
    config = WorkerConfig(name="victim", world_size=2, restart="on_failure", max_restarts=50, timeout_s=60.0)
    right, typed = 0, []
    with ResourceManager() as manager, Cluster("victim", Victim, manager, config) as cluster:
        cluster.initialize(3)
        for number in range(CALLS):
            if number in deaths:
                kill_one(cluster, chance)
            rows = list(range(number % 7 + 1))
            began = time.monotonic()
            try:
                assert cluster.scale(rows) == [3 * row for row in rows]
                right += 1
            except WorkerError as error:
                typed.append(error)
            assert time.monotonic() - began < 65
    assert right + len(typed) == CALLS
    assert len(typed) <= KILLS
    assert all((error.cluster, error.rank in (0, 1)) == ("victim", True) for error in typed)
