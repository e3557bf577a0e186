"""Two pretend nodes on this machine: run by test_executor_nodes.py in a process of its own."""

import os
import socket
import sys
import time
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster as RayCluster

from roll_dispatch import Dispatch, register
from roll_executor import Cluster, Worker, WorkerConfig, WorkerError
from roll_resources import ResourceManager


class Standing(Worker):
    """A worker that tells where it stands."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def stand(self) -> tuple[str, int, str]:
        """Return node, local rank and visible devices."""
        node = ray.get_runtime_context().get_node_id()
        return node, self.local_rank, os.environ.get("CUDA_VISIBLE_DEVICES", "")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def meet(self) -> str:
        """Meet the other rank at the master address, across nodes."""
        address = (self.master_addr, self.master_port)
        if self.rank == 0:
            with socket.create_server(address) as server:
                for _ in range(self.world_size - 1):
                    peer, _ = server.accept()
                    with peer:
                        peer.sendall(b"hello")
            return "hello"
        deadline = time.monotonic() + 20
        while True:
            try:
                with socket.create_connection(address, timeout=20) as connection:
                    return connection.recv(5).decode()
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def sleep(self) -> None:
        """Sleep long."""
        time.sleep(100)

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def echo(self, rows: list[int]) -> list[int]:
        """Return the rows."""
        return rows


def open_cluster(manager: ResourceManager, name: str, **changes: Any) -> Cluster:
    """Return a cluster of standing workers."""
    return Cluster(name, Standing, manager, WorkerConfig(name=name, **changes))


def check_placement(manager: ResourceManager) -> None:
    """Roles on devices and on CPUs stand on both nodes as planned."""
    with (
        open_cluster(manager, "train", device_mapping="0-3") as train,
        open_cluster(manager, "reward", world_size=4) as reward,
    ):
        places = train.stand()
        assert [place[1] for place in places] == [0, 1, 0, 1], places
        assert places[0][0] == places[1][0] != places[2][0] == places[3][0], places
        assert len({(node, device) for node, _, device in places}) == 4, places
        on_cpu = reward.stand()
        assert [place[1] for place in on_cpu] == [0, 0, 1, 1], on_cpu
        assert on_cpu[0][0] == on_cpu[2][0] == places[0][0] != on_cpu[1][0], on_cpu
        assert all(device in ("", "-1") for _, _, device in on_cpu), on_cpu
        assert train.meet(timeout_s=60) == ["hello"] * 4
        assert reward.echo([1, 2, 3, 4, 5]) == [1, 2, 3, 4, 5]


def check_lost_node(manager: ResourceManager, ray_cluster: Any, second: Any) -> None:
    """A node that goes away ends the call with one typed error, and other clusters still answer."""
    with (
        open_cluster(manager, "spread", world_size=2, kill_peers_after_s=1.0) as spread,
        open_cluster(manager, "here", world_size=1) as here,
    ):
        pending = spread.sleep(blocking=False)
        time.sleep(1.0)
        ray_cluster.remove_node(second, allow_graceful=False)
        began = time.monotonic()
        with pytest.raises(WorkerError) as caught:
            pending.result()
        error = caught.value
        assert (error.cluster, error.rank, error.method) == ("spread", 1, "sleep"), error
        seconds = time.monotonic() - began
        assert seconds < 30, seconds
        assert here.echo([1]) == [1]


def main() -> None:
    """Start two nodes, place roles on them, then lose one."""
    ray_cluster = RayCluster(
        initialize_head=True, head_node_args={"num_cpus": 4, "num_gpus": 2, "include_dashboard": False}
    )
    second = ray_cluster.add_node(num_cpus=4, num_gpus=2)
    try:
        with ResourceManager(num_nodes=2, num_gpus_per_node=2, address=ray_cluster.address) as manager:
            manager.start()
            check_placement(manager)
            check_lost_node(manager, ray_cluster, second)
    finally:
        ray_cluster.shutdown()  # type: ignore[no-untyped-call]  # Ray leaves it untyped
    sys.stdout.write("both nodes kept the contract\n")


if __name__ == "__main__":
    main()
