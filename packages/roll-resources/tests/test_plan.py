"""Plans are pure and complete."""

import pickle
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roll_resources import (
    DevicePool,
    NodeSpec,
    Plan,
    PlanError,
    ResourceManager,
    RoleRequest,
    plan,
    spell_ids,
    table,
)

POOL = DevicePool.uniform(nodes=2, gpus_per_node=8)


def local_ids(made: Plan, role: str) -> list[list[tuple[int, int]]]:
    return [[(device.node, device.local_id) for device in place.devices] for place in made[role]]


def test_devices_stand_on_the_node_that_their_id_tells() -> None:
    made = plan([RoleRequest(name="train", device_mapping=[0, 7, 8, 15])], POOL)
    assert local_ids(made, "train") == [[(0, 0)], [(0, 7)], [(1, 0)], [(1, 7)]]
    assert [place.node for place in made["train"]] == [0, 0, 1, 1]
    assert [place.local_rank for place in made["train"]] == [0, 1, 0, 1]


def test_workers_take_consecutive_devices_in_mapping_order() -> None:
    made = plan([RoleRequest(name="infer", device_mapping=[3, 1, 2, 0], num_gpus_per_worker=2)], POOL)
    assert local_ids(made, "infer") == [[(0, 3), (0, 1)], [(0, 2), (0, 0)]]


def test_a_worker_may_span_nodes() -> None:
    made = plan([RoleRequest(name="infer", device_mapping="6-9", world_size=1)], POOL)
    assert made["infer"][0].nodes == (0, 1)
    assert "node1:1" in str(made)


def test_world_size_and_devices_per_worker_are_derived_from_one_another() -> None:
    by_size = plan([RoleRequest(name="r", device_mapping="0-7", world_size=2)], POOL)
    by_share = plan([RoleRequest(name="r", device_mapping="0-7", num_gpus_per_worker=4)], POOL)
    assert by_size == by_share
    assert len(by_size["r"]) == 2


def test_cpu_workers_are_spread_evenly() -> None:
    made = plan([RoleRequest(name="reward", world_size=5)], DevicePool.uniform(nodes=3))
    assert [place.node for place in made["reward"]] == [0, 1, 2, 0, 1]
    assert [place.local_rank for place in made["reward"]] == [0, 0, 0, 1, 1]


def test_heterogeneous_nodes_number_their_devices_in_order() -> None:
    pool = DevicePool((NodeSpec(gpus=2), NodeSpec(gpus=0), NodeSpec(gpus=3)))
    made = plan([RoleRequest(name="r", device_mapping="0-4")], pool)
    assert local_ids(made, "r") == [[(0, 0)], [(0, 1)], [(2, 0)], [(2, 1)], [(2, 2)]]


def test_shared_devices_are_shown() -> None:
    made = plan(
        [
            RoleRequest(name="train", device_mapping="0-3"),
            RoleRequest(name="infer", device_mapping="2-5"),
            RoleRequest(name="reward"),
        ],
        POOL,
    )
    assert [(group.roles, group.devices) for group in made.sharing] == [(("train", "infer"), (2, 3))]
    assert "shared by train, infer: devices 2-3" in table(made)


def test_all_problems_are_told_at_once_with_their_paths() -> None:
    with pytest.raises(PlanError) as caught:
        plan(
            [
                RoleRequest(name="a", device_mapping="0-16", path="actor_train"),
                RoleRequest(name="b", device_mapping=[0, 0]),
                RoleRequest(name="c", device_mapping="0-6", num_gpus_per_worker=2),
                RoleRequest(name="d", world_size=0),
                RoleRequest(name="e", num_gpus_per_worker=1),
                RoleRequest(name="f", device_mapping="0", num_gpus_per_worker=0),
                RoleRequest(name="g", num_cpus_per_worker=-1),
                RoleRequest(name="h", resources={"ssd": 0}),
                RoleRequest(name="i"),
                RoleRequest(name="i"),
            ],
            POOL,
        )
    told = caught.value.problems
    assert len(told) == 9
    text = str(caught.value)
    assert text.startswith("9 problem(s)")
    assert "actor_train: device_mapping names [16] and the pool has 2 node(s) with 16 device(s)" in text
    for start in (
        "b: ",
        "c: 7 device(s)",
        "d: world_size is 0",
        "e: ",
        "f: ",
        "g: ",
        "h: resources.ssd",
        "i: two",
    ):
        assert any(problem.startswith(start) for problem in told), start
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.problems) == (text, told)


def test_a_pool_without_devices_says_so() -> None:
    with pytest.raises(PlanError, match="no devices"):
        plan([RoleRequest(name="train", device_mapping=[0])], DevicePool.uniform())


def test_cpu_workers_stand_where_there_is_room_for_what_they_ask() -> None:
    nodes = (NodeSpec(cpus=8), NodeSpec(cpus=8, resources={"ssd": 3}), NodeSpec(cpus=1, resources={"ssd": 1}))
    made = plan([RoleRequest(name="r", world_size=4, resources={"ssd": 1})], DevicePool(nodes))
    assert [(place.node, place.local_rank) for place in made["r"]] == [(1, 0), (2, 0), (1, 1), (1, 2)]
    made = plan([RoleRequest(name="r", world_size=5, num_cpus_per_worker=1)], DevicePool(nodes))
    assert [place.node for place in made["r"]] == [0, 1, 2, 0, 1]
    with pytest.raises(PlanError, match=r"room for 4 \(node0: 8 CPUs, 0 of 'ssd'; node1: 8 CPUs, 3 of"):
        plan([RoleRequest(name="r", world_size=7, resources={"ssd": 1})], DevicePool(nodes))


def test_cpus_and_custom_resources_are_counted_per_node() -> None:
    pool = DevicePool((NodeSpec(cpus=2, resources={"ssd": 1}),))
    assert plan([RoleRequest(name="r", world_size=2, num_cpus_per_worker=1)], pool)
    with pytest.raises(PlanError, match=r"ask for 3 CPUs \(2 of r, 1 of s\) and it has 2"):
        plan(
            [
                RoleRequest(name="r", world_size=2, num_cpus_per_worker=1),
                RoleRequest(name="s", num_cpus_per_worker=1),
            ],
            pool,
        )
    with pytest.raises(
        PlanError, match=r"^r: 2 worker\(s\) ask for 0.01 CPUs and 1 of 'ssd' each, and .* room for 1"
    ):
        plan([RoleRequest(name="r", world_size=2, resources={"ssd": 1})], pool)


def test_sharing_that_a_role_forbids_is_refused() -> None:
    with pytest.raises(PlanError, match=r"b: colocate is false and role 'a' also uses device\(s\) \[1\]"):
        plan(
            [
                RoleRequest(name="a", device_mapping="0-1"),
                RoleRequest(name="b", device_mapping="1-2", colocate=False),
            ],
            POOL,
        )


@given(
    nodes=st.integers(1, 4),
    gpus=st.integers(1, 8),
    order=st.randoms(use_true_random=False),
    each=st.integers(1, 4),
)
def test_every_device_goes_to_one_worker_where_its_id_says(
    nodes: int, gpus: int, order: Random, each: int
) -> None:
    ids = list(range(nodes * gpus))
    order.shuffle(ids)
    ids = ids[: len(ids) // each * each]
    if not ids:
        return
    pool = DevicePool.uniform(nodes=nodes, gpus_per_node=gpus)
    request = RoleRequest(name="r", device_mapping=ids, num_gpus_per_worker=each)
    made = plan([request], pool)
    assert [device.global_id for place in made["r"] for device in place.devices] == ids
    for place in made["r"]:
        assert len(place.devices) == each
        assert all(
            (device.node, device.local_id) == divmod(device.global_id, gpus) for device in place.devices
        )
    assert plan([request], pool) == made


@given(st.integers(1, 40), st.integers(1, 7))
def test_cpu_workers_per_node_differ_by_at_most_one(workers: int, nodes: int) -> None:
    made = plan([RoleRequest(name="r", world_size=workers)], DevicePool.uniform(nodes=nodes))
    counts = [sum(place.node == node for place in made["r"]) for node in range(nodes)]
    assert max(counts) - min(counts) <= 1


@given(st.lists(st.integers(0, 30), unique=True))
def test_spelled_ids_can_be_read_back(ids: list[int]) -> None:
    from roll_resources import parse_device_mapping

    assert (parse_device_mapping(spell_ids(ids)) or ()) == tuple(ids)


def test_a_local_manager_plans_and_reserves_nothing() -> None:
    with ResourceManager(num_nodes=2, num_gpus_per_node=4, runtime="local") as manager:
        places = manager.allocate(RoleRequest(name="r", device_mapping="0-7")).placements
        assert [place.node for place in places] == [0, 0, 0, 0, 1, 1, 1, 1]
        with pytest.raises(PlanError, match="ids 0-7"):
            manager.allocate(RoleRequest(name="r", device_mapping="0-8"))


@pytest.mark.parametrize(("nodes", "gpus"), [(0, 1), (1, -1)])
def test_impossible_counts_are_refused(nodes: int, gpus: int) -> None:
    with pytest.raises(PlanError):
        ResourceManager(num_nodes=nodes, num_gpus_per_node=gpus)


def test_a_closed_manager_refuses_work() -> None:
    from roll_resources import ManagerClosedError

    manager = ResourceManager(runtime="local")
    manager.close()
    manager.close()
    with pytest.raises(ManagerClosedError):
        manager.allocate(RoleRequest(name="r"))


def test_a_mapping_larger_than_the_run_is_refused_before_ray_starts() -> None:
    manager = ResourceManager(num_nodes=1, num_gpus_per_node=2, address="nowhere:1")
    with pytest.raises(PlanError, match="ids 0-1"):
        manager.allocate(RoleRequest(name="r", device_mapping="0-3"))
