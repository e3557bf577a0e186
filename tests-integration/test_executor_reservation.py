"""Places on a real Ray: granted in time or refused in words, and always given back."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
import ray
from ray.util.placement_group import placement_group_table

from roll_dispatch import Dispatch, register
from roll_executor import Cluster, Worker, WorkerConfig
from roll_resources import PlanError, ReservationError, ReservationTimeoutError, ResourceManager, RoleRequest

pytestmark = pytest.mark.ray


class Nothing(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def pid(self) -> int:
        return os.getpid()

    def visible(self) -> str:
        return os.environ["CUDA_VISIBLE_DEVICES"]


def groups_held() -> int:
    return sum(group["state"] != "REMOVED" for group in placement_group_table().values())


def wait_until(what: Any, expected: object, within_s: float = 20.0) -> object:
    deadline = time.monotonic() + within_s
    found = what()
    while found != expected and time.monotonic() < deadline:
        time.sleep(0.05)
        found = what()
    return found


def free() -> dict[str, float]:
    amounts = ray.available_resources()  # type: ignore[no-untyped-call]  # Ray leaves it untyped
    return {kind: amounts.get(kind, 0.0) for kind in ("CPU", "GPU", "special")}


@contextmanager
def nothing_left() -> Iterator[None]:
    before, expected = groups_held(), free()
    yield
    assert wait_until(groups_held, before) == before
    assert wait_until(free, expected) == expected


def test_a_place_that_is_not_granted_says_what_is_short_and_who_holds_it(ray_session: str) -> None:
    with nothing_left(), ResourceManager(timeout_s=0.5) as manager, ResourceManager() as other:
        other.allocate(RoleRequest(name="holder", num_cpus_per_worker=12))
        began = time.monotonic()
        with pytest.raises(ReservationTimeoutError) as caught:
            manager.allocate(RoleRequest(name="hungry", num_cpus_per_worker=10))
        assert time.monotonic() - began < 5
        text = str(caught.value)
        assert "the places of hungry within 0.5 s" in text
        assert "lacks CPU: 10 wanted, 4 free; held by placement group" in text
        assert "(12)" in text


def test_more_than_a_node_has_is_refused_before_anything_is_reserved(ray_session: str) -> None:
    with nothing_left(), ResourceManager(num_nodes=1, num_gpus_per_node=8) as manager:
        with pytest.raises(PlanError, match="99 CPUs"):
            manager.allocate(RoleRequest(name="greedy", num_cpus_per_worker=99))
        with pytest.raises(PlanError, match="ids 0-7"):
            manager.allocate(RoleRequest(name="wide", device_mapping="0-8"))
        with pytest.raises(PlanError, match="'special'"):
            manager.allocate(RoleRequest(name="special", resources={"special": 5}))


def test_nodes_that_do_not_exist_are_waited_for_and_then_named(ray_session: str) -> None:
    with nothing_left():
        with pytest.raises(ReservationTimeoutError, match=r"2 node\(s\) .* Ray has 1 of them"):
            ResourceManager(num_nodes=2, timeout_s=0.3).start()
        with pytest.raises(ReservationTimeoutError, match=r"at least 9 device\(s\)"):
            ResourceManager(num_gpus_per_node=9, timeout_s=0.3).start()


def test_a_custom_resource_is_reserved_per_worker(ray_session: str) -> None:
    with nothing_left(), ResourceManager() as manager:
        manager.allocate(RoleRequest(name="s", world_size=2, resources={"special": 2}))
        assert wait_until(lambda: free()["special"], 0.0) == 0.0


def test_workers_on_devices_take_their_cpus_from_the_share_beside_them(ray_session: str) -> None:
    train, infer = (
        RoleRequest(name=name, device_mapping="0-1", num_cpus_per_worker=1.5) for name in ("train", "infer")
    )
    with nothing_left(), ResourceManager(num_nodes=1, num_gpus_per_node=2, num_cpus_per_node=3) as manager:
        first = manager.allocate(train)
        with pytest.raises(ReservationError, match="3 wanted, 0 left"):
            manager.allocate(infer)
        first.release()
        manager.allocate(infer).release()


def test_a_role_on_devices_reserves_custom_resources_beside_them(ray_session: str) -> None:
    config = WorkerConfig(name="train", device_mapping="0-1", resources={"special": 2})
    with nothing_left(), ResourceManager(num_nodes=1, num_gpus_per_node=2, num_cpus_per_node=1) as manager:
        with Cluster("train", Nothing, manager, config) as cluster:
            assert len(set(cluster.pid())) == 2
            assert wait_until(lambda: free()["special"], 0.0) == 0.0
            with pytest.raises(ReservationTimeoutError, match=r"special: 1 wanted, 0 free; held by .* \(4\)"):
                ResourceManager(timeout_s=0.5).allocate(RoleRequest(name="other", resources={"special": 1}))
        assert wait_until(lambda: free()["special"], 4.0) == 4.0
        with pytest.raises(PlanError, match="ask for 6 of resource 'special' and it has 4"):
            manager.allocate(RoleRequest(name="greedy", device_mapping="0-1", resources={"special": 3}))


RESERVE_AND_END = """
import sys
from roll_resources import ResourceManager, RoleRequest
sizes = {"num_nodes": 1, "num_gpus_per_node": 3, "num_cpus_per_node": 1}
manager = ResourceManager(**sizes, address=sys.argv[1], name="kept")
devices = manager.allocate(RoleRequest(name="train", device_mapping="0-2"))
manager.allocate(RoleRequest(name="reward", world_size=2, num_cpus_per_worker=2))
print("devices", *(slot.visible_ids[0] for slot in devices.slots))
manager.close()
"""


def test_what_is_reserved_under_a_name_outlives_its_driver_until_it_is_released(ray_session: str) -> None:
    def kept(**changes: Any) -> ResourceManager:
        sizes = {"num_nodes": 1, "num_gpus_per_node": 3, "num_cpus_per_node": 1}
        return ResourceManager(**(sizes | {"name": "kept"} | changes))

    with nothing_left():
        before = free()
        told = subprocess.check_output(
            [sys.executable, "-c", RESERVE_AND_END, ray_session], text=True, stderr=subprocess.DEVNULL
        )
        held = {"CPU": before["CPU"] - 5, "GPU": before["GPU"] - 3, "special": before["special"]}
        assert wait_until(free, held) == held  # although the process that reserved it has ended
        with pytest.raises(ReservationError, match=r"release\(\) the name first"):
            kept(num_nodes=2).start()
        with kept(num_cpus_per_node=2) as other, pytest.raises(ReservationError, match="the name 'kept'"):
            other.allocate(RoleRequest(name="train", device_mapping="0-2"))
        config = WorkerConfig(name="train", device_mapping="0-2")
        with kept() as manager, Cluster("train", Nothing, manager, config) as cluster:
            assert cluster.execute_all_sync("visible") == told.split()[1:]
            reward = manager.allocate(RoleRequest(name="reward", world_size=2, num_cpus_per_worker=2))
            assert [place.rank for place in reward.placements] == [0, 1]
        assert wait_until(free, held) == held
        assert kept().release() == 2


def test_a_function_runs_once_per_node(ray_session: str) -> None:
    with nothing_left(), ResourceManager() as manager:
        (node,) = manager.run_on_nodes(lambda: ray.get_runtime_context().get_node_id())
        assert node == ray.get_runtime_context().get_node_id()


def test_twenty_clusters_one_after_the_other_leave_nothing_behind(ray_session: str) -> None:
    config = WorkerConfig(name="passing", world_size=1)
    pids = []

    def named_actors() -> list[object]:
        return list(ray.util.list_named_actors(all_namespaces=True))

    with nothing_left():
        for _ in range(20):
            with ResourceManager() as manager, Cluster("passing", Nothing, manager, config) as cluster:
                pids += cluster.pid()
        assert len(set(pids)) == 20
        assert wait_until(lambda: [pid for pid in pids if psutil.pid_exists(pid)], []) == []
        assert wait_until(named_actors, []) == []


def test_a_killed_worker_does_not_keep_its_place(ray_session: str) -> None:
    config = WorkerConfig(name="killed", world_size=2)
    with nothing_left(), ResourceManager() as manager, Cluster("killed", Nothing, manager, config) as cluster:
        os.kill(cluster.pid()[1], signal.SIGKILL)
