"""Clusters on Ray: what they send, how they are built and where they can be used."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
import ray
from opentelemetry import trace

from roll_dispatch import Dispatch, register
from roll_executor import (
    Cluster,
    ExecutorError,
    Worker,
    WorkerConfig,
    create_clusters,
)
from roll_resources import ResourceManager

pytestmark = pytest.mark.ray


class Counted:
    """A payload that counts how often it is serialised in this process."""

    times = 0

    def __reduce__(self) -> tuple[Any, ...]:
        Counted.times += 1
        return Counted, ()


class PlainWorker(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config: Any) -> None:
        super().initialize(pipeline_config)
        if pipeline_config == "tensor parallel":
            self.rank_info = self.rank_info.replace(
                dp_rank=0, dp_size=1, tp_rank=self.rank, tp_size=self.world_size
            )

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def take(self, payload: object) -> str:
        return type(payload).__name__

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def grow(self, rows: list[int]) -> bytes:
        return bytes(1_000_000)

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def echo(self, rows: list[int]) -> list[int]:
        return rows

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def environment(self) -> dict[str, str | None]:
        names = (
            "RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT CLUSTER_NAME WORKER_NAME OMP_NUM_THREADS "
            "CUDA_VISIBLE_DEVICES MINE FLAG"
        )
        return {name: os.environ.get(name) for name in names.split()}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def trace(self) -> int:
        return trace.get_current_span().get_span_context().trace_id

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def call_another(self, other: Any, rows: list[int]) -> object:
        """Call a cluster, or what carries messages to one, from inside a worker."""
        if hasattr(other, "send"):
            return other.send("echo", rows).result(20)
        return other.echo(rows)


class MeetingWorker(Worker):
    """A worker whose constructor waits until the workers of all eight clusters are being built."""

    def __init__(self, worker_config: Any) -> None:
        super().__init__(worker_config)
        folder = Path(os.environ["MEETING_POINT"])
        (folder / self.cluster_name).touch()
        deadline = time.monotonic() + 60
        while len(list(folder.iterdir())) < 8:
            if time.monotonic() > deadline:
                raise TimeoutError("the other clusters did not come")
            time.sleep(0.05)


def open_cluster(
    manager: ResourceManager, name: str = "plain", worker_cls: Any = None, **changes: Any
) -> Cluster:
    config = WorkerConfig(name=name, **({"world_size": 2} | changes))
    return Cluster(
        name=name, worker_cls=worker_cls or PlainWorker, resource_manager=manager, worker_config=config
    )


def test_a_shared_payload_is_serialised_once_and_put_once(ray_session: str) -> None:
    with ResourceManager() as manager, open_cluster(manager, world_size=4) as cluster:
        before, Counted.times = cluster.num_puts, 0
        assert cluster.take(Counted()) == ["Counted"] * 4
        assert (Counted.times, cluster.num_puts - before) == (1, 1)
        cluster.take(7)
        cluster.take("a short text")
        assert cluster.num_puts - before == 1
        assert cluster.echo([1, 2, 3, 4]) == [1, 2, 3, 4]  # four different parts: nothing is shared
        assert cluster.num_puts - before == 1


def test_a_call_is_one_message_per_rank_and_coordinates_cost_none(ray_session: str) -> None:
    with ResourceManager() as manager, open_cluster(manager) as cluster:
        cluster.initialize("tensor parallel")
        for _ in range(5):
            cluster.echo([1, 2])
            assert (cluster.dp_size, cluster.tp_size, cluster.get_rank_info(1).tp_rank) == (1, 2, 1)
        assert [entry.calls for entry in cluster.health()] == [6, 6]


def test_results_that_do_not_collect_stay_where_they_are(ray_session: str) -> None:
    with ResourceManager() as manager, open_cluster(manager) as cluster:
        cluster.initialize("tensor parallel")
        pending = cluster.grow([1], blocking=False)
        assert (len(pending), len(pending.all_refs)) == (1, 2)
        assert [len(result) for result in pending.result()] == [1_000_000]
        assert [len(result) for result in ray.get(pending)] == [1_000_000]


def test_every_rank_has_its_environment(ray_session: str) -> None:
    envs = {"MINE": 5, "FLAG": True}
    with (
        ResourceManager() as manager,
        open_cluster(manager, system_envs=envs) as cluster,
        open_cluster(manager, "other", system_envs={"OMP_NUM_THREADS": 2}) as other,
    ):
        found = cluster.environment()
        assert [env["RANK"] for env in found] == ["0", "1"]
        assert [env["LOCAL_RANK"] for env in found] == ["0", "1"]
        assert {env["WORLD_SIZE"] for env in found} == {"2"}
        assert [env["WORKER_NAME"] for env in found] == ["plain-0", "plain-1"]
        assert {(env["MINE"], env["FLAG"], env["OMP_NUM_THREADS"]) for env in found} == {("5", "1", "1")}
        assert len({(env["MASTER_ADDR"], env["MASTER_PORT"]) for env in found}) == 1
        assert other.environment()[0]["MASTER_PORT"] != found[0]["MASTER_PORT"]
        assert other.environment()[0]["OMP_NUM_THREADS"] == "2"


def test_devices_are_visible_in_mapping_order_and_can_be_shared(ray_session: str) -> None:
    with (
        ResourceManager(num_nodes=1, num_gpus_per_node=4, num_cpus_per_node=1) as manager,
        open_cluster(manager, world_size=None, device_mapping=[3, 1, 0, 2], num_gpus_per_worker=2) as cluster,
        open_cluster(manager, "other", world_size=None, device_mapping="0-3") as other,
    ):
        pairs = [str(env["CUDA_VISIBLE_DEVICES"]).split(",") for env in cluster.environment()]
        order = [device for pair in pairs for device in pair]
        single = [str(env["CUDA_VISIBLE_DEVICES"]) for env in other.environment()]
        assert order == [single[3], single[1], single[0], single[2]]
        assert len(set(single)) == 4


def test_two_managers_are_given_different_devices(ray_session: str) -> None:
    with (
        ResourceManager(num_nodes=1, num_gpus_per_node=3, num_cpus_per_node=1) as first,
        ResourceManager(num_nodes=1, num_gpus_per_node=3, num_cpus_per_node=1) as second,
        open_cluster(first, world_size=None, device_mapping="0-2") as mine,
        open_cluster(second, world_size=None, device_mapping="0-2") as yours,  # the same name is no clash
    ):
        seen = [env["CUDA_VISIBLE_DEVICES"] for env in (*mine.environment(), *yours.environment())]
        assert len(set(seen)) == 6


def test_a_worker_class_may_be_named_or_wrapped_by_ray(ray_session: str) -> None:
    with ResourceManager() as manager:
        for way in ("roll_executor.testing.ContractWorker", ray.remote(PlainWorker)):
            with open_cluster(manager, worker_cls=way, world_size=1) as cluster:
                assert cluster.execute_all_sync("initialize", None) == [None]


def test_the_trace_of_the_driver_reaches_the_workers_beside_the_payload(ray_session: str) -> None:
    context = trace.SpanContext(0x1234, 0x56, is_remote=False, trace_flags=trace.TraceFlags(1))
    with ResourceManager() as manager, open_cluster(manager) as cluster:
        assert cluster.trace() == [0, 0]
        with trace.use_span(trace.NonRecordingSpan(context)):
            assert cluster.trace() == [0x1234] * 2


def test_a_cluster_and_its_transport_can_be_used_inside_a_worker(ray_session: str) -> None:
    with (
        ResourceManager() as manager,
        open_cluster(manager) as cluster,
        open_cluster(manager, "other", world_size=1) as other,
    ):
        cluster.initialize("tensor parallel", blocking=False)
        assert other.call_another(cluster, [1, 2]) == [[1, 2]]
        assert other.call_another(cluster.transport(), [1, 2]) == [[[1, 2], [1, 2]]]
        assert cluster.echo([3]) == [3]  # the copy has ended nothing


def test_a_second_cluster_of_the_same_name_is_refused_and_leaves_the_first_alone(ray_session: str) -> None:
    with ResourceManager() as manager, open_cluster(manager) as cluster:
        with pytest.raises(ExecutorError, match="'plain-0' exists already"):
            open_cluster(manager)
        assert cluster.echo([1, 2]) == [1, 2]


def test_clusters_are_created_side_by_side(ray_session: str, tmp_path: Path) -> None:
    config = WorkerConfig(name="meeting", world_size=1, system_envs={"MEETING_POINT": str(tmp_path)})
    with ResourceManager() as manager:
        roles = {f"meeting{i}": (f"meeting{i}", MeetingWorker, config) for i in range(8)}
        clusters = create_clusters(roles, manager)
        for cluster in clusters.values():
            cluster.close()
    assert list(clusters) == [f"meeting{i}" for i in range(8)]
