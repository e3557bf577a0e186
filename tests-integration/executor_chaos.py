"""Two hundred calls while workers are killed at random and a node is lost: part of executor_nodes.py."""

import os
import random
import signal
import time
from typing import Any

from roll_dispatch import Dispatch, register
from roll_executor import Cluster, Worker, WorkerConfig, WorkerError
from roll_resources import ResourceManager

CALLS = 200
KILLS = 8
LOSS = 120
"""The call before which a node is lost."""
LONGEST_S = 65.0


class Victim(Worker):
    """A stateless worker."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config: Any) -> None:  # Any: see Worker
        """Keep the configuration."""
        super().initialize(pipeline_config)

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def scale(self, rows: list[int]) -> list[int]:
        """Return the rows times the configured number."""
        return [row * self.pipeline_config for row in rows]


def kill_one(cluster: Cluster, chance: random.Random) -> None:
    """Kill a worker of the cluster, whichever lives."""
    alive = [entry.where.pid for entry in cluster.health() if entry.state in ("idle", "busy")]
    if alive:
        os.kill(chance.choice(alive), signal.SIGKILL)


def open_victims() -> tuple[ResourceManager, Cluster]:
    """Return four workers, spread over the nodes that there are."""
    manager = ResourceManager()
    config = WorkerConfig(name="victim", world_size=4, restart="on_failure", max_restarts=50, timeout_s=60.0)
    cluster = Cluster("victim", Victim, manager, config)
    cluster.initialize(3)
    return manager, cluster


def check_chaos(ray_cluster: Any, lost: Any) -> None:
    """Every call returns the right rows or raises one typed error; after the loss a new cluster goes on."""
    chance = random.Random(7)
    deaths = set(chance.sample(range(10, CALLS), KILLS))
    right, typed, rebuilt = 0, [], 0
    manager, cluster = open_victims()
    for number in range(CALLS):
        if number in deaths:
            kill_one(cluster, chance)
        if number == LOSS:
            ray_cluster.remove_node(lost, allow_graceful=False)
        rows = list(range(number % 9 + 1))
        began = time.monotonic()
        try:
            assert cluster.scale(rows) == [3 * row for row in rows]
            right += 1
        except WorkerError as error:
            typed.append(error)
            if "a node that has left" in str(error):  # the message says what to do: build it again
                manager.close()
                manager, cluster = open_victims()
                rebuilt += 1
        assert time.monotonic() - began < LONGEST_S, number
    manager.close()
    assert right + len(typed) == CALLS
    assert rebuilt == 1, typed
    # One error for each death; for the lost node one or two until it is known, and one that says so.
    assert len(typed) <= KILLS + 3, typed
    assert all(error.cluster == "victim" and 0 <= error.rank < 4 for error in typed), typed
