"""Several pretend nodes on this machine: run by test_executor_nodes.py in a process of its own."""

import importlib.util
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from executor_chaos import check_chaos
from ray.cluster_utils import Cluster as RayCluster

from roll_dispatch import Dispatch, register
from roll_executor import Cluster, WorkerConfig, WorkerDiedError, WorkerError
from roll_executor.testing import ContractWorker
from roll_pipelines.config.load import load_config
from roll_pipelines.model_files import Fetched, prepare_models
from roll_pipelines.rlvr import RLVRPipeline
from roll_resources import PlanError, ResourceManager, RoleRequest

EXAMPLE = Path(__file__).parents[1] / "examples" / "rlvr_tiny.yaml"
ONE_STEP = (
    "max_steps=1",
    "warm_up.steps=0",
    "kl_loss_coef=0.0",
    "rollout_batch_size=4",
    "task.num_held_out=4",
    "validation.num_samples=1",
    "track_with=[jsonl]",
    "num_nodes=2",
    "actor_infer.world_size=2",
)
SHIPPED_MODULE = "shipped_words"
OUT_OF_MEMORY = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "8000"}
"""A node that takes itself for full, and looks every eight seconds whom to end."""


class Standing(ContractWorker):
    """A worker that tells where it stands."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def stand(self) -> tuple[str, int, str]:
        """Return node, local rank and visible devices."""
        node = ray.get_runtime_context().get_node_id()
        return node, self.local_rank, os.environ.get("CUDA_VISIBLE_DEVICES", "")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def shipped(self) -> tuple[str, str, str]:
        """Return what the code and the environment say that were shipped, and where the code lies."""
        words: Any = importlib.import_module(SHIPPED_MODULE)  # Any: it comes with the runtime environment
        return words.WORDS, os.environ["SHIPPED"], words.__file__


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
        assert reward.double([1, 2, 3, 4, 5]) == [2, 4, 6, 8, 10]


def check_models(manager: ResourceManager, folder: Path) -> None:
    """A model that several roles load is fetched once on each node."""

    def fetch(name: str) -> Fetched:
        node = str(ray.get_runtime_context().get_node_id())
        with (folder / name).open("a") as asked:
            asked.write(node + "\n")
        return node, ""

    prepare_models(manager, ["one", "two", "one"], fetch=fetch)
    for name in ("one", "two"):
        nodes = (folder / name).read_text().split()
        assert len(nodes) == len(set(nodes)) == 2, nodes


def check_shipped_code(folder: Path) -> None:
    """Code and environment of the driver reach the workers of both nodes."""
    code = folder / "code"
    code.mkdir()
    (code / f"{SHIPPED_MODULE}.py").write_text('WORDS = "from the driver"\n')
    assert importlib.util.find_spec(SHIPPED_MODULE) is None
    shipping = {"working_dir": str(code), "env_vars": {"SHIPPED": "yes"}}
    with (
        ResourceManager(num_nodes=2, runtime_env=shipping) as manager,
        open_cluster(manager, "away", world_size=2) as away,
    ):
        for words, variable, file in away.shipped():
            assert (words, variable) == ("from the driver", "yes")
            assert not file.startswith(str(code)), file


def check_pipeline(folder: Path) -> None:
    """One step of reinforcement learning, the policy and the engine on both nodes, joined by RAY_ADDRESS."""
    config = load_config(EXAMPLE, [*ONE_STEP, f"output_dir={folder / 'run'}"]).config
    with RLVRPipeline(config) as pipeline:  # type: ignore[arg-type]  # the example names this pipeline
        for cluster in (pipeline.actor_train, pipeline.actor_infer):
            raylets = {psutil.Process(where.pid).ppid() for where in cluster.wheres}
            assert len(raylets) == 2, cluster.wheres
        pipeline.run()
    assert len((folder / "run" / "metrics.jsonl").read_text().splitlines()) == 1
    assert (folder / "run" / "checkpoints" / "checkpoint-0" / "actor_train").is_dir()


def check_four_nodes() -> None:
    """Nodes may differ: devices are those of the nodes that have them, and workers go where there is room."""
    with ResourceManager(num_gpus_per_node=2) as manager:
        assert len(manager.start().pool.nodes) == 3  # one of the four has no devices
        with open_cluster(manager, "train", device_mapping="0-5", num_gpus_per_worker=3) as train:
            assert [len(place[2].split(",")) for place in train.stand()] == [2, 1]  # those on its own node
    with ResourceManager(num_nodes=4) as manager:
        with open_cluster(manager, "everywhere", world_size=8) as everywhere:
            nodes = [place[0] for place in everywhere.stand()]
            assert nodes[:4] == nodes[4:], nodes
            assert len(set(nodes)) == 4, nodes
        with open_cluster(manager, "special", world_size=2, resources={"ssd": 1}) as special:
            assert len({place[0] for place in special.stand()}) == 1
        with pytest.raises(PlanError, match="there is room for 2"):
            manager.plan([RoleRequest(name="special", world_size=3, resources={"ssd": 1})])


def check_lost_node(ray_cluster: Any, candidates: list[Any]) -> None:
    """A node that goes away ends the call with one typed error, and other clusters still answer."""
    with (
        ResourceManager(num_nodes=2, num_gpus_per_node=2) as manager,
        open_cluster(manager, "spread", device_mapping="0-3", kill_peers_after_s=1.0) as spread,
        open_cluster(manager, "here", world_size=1) as here,
    ):
        homes = [place[0] for place in spread.stand()]
        (lost,) = (node for node in candidates if node.node_id in homes)
        gone = {rank for rank, home in enumerate(homes) if home == lost.node_id}
        pending = spread.sleep(100, blocking=False)
        time.sleep(1.0)
        ray_cluster.remove_node(lost, allow_graceful=False)
        began = time.monotonic()
        with pytest.raises(WorkerError) as caught:
            pending.result()
        error = caught.value
        assert (error.cluster, error.rank in gone, error.method) == ("spread", True, "sleep"), error
        seconds = time.monotonic() - began
        assert seconds < 30, seconds
        assert here.double([1]) == [2]


def check_out_of_memory(ray_cluster: Any) -> None:
    """A worker that Ray ends because its node is full is told by name, with what to do."""
    ray_cluster.add_node(num_cpus=1, resources={"full": 1}, env_vars=OUT_OF_MEMORY)
    with (
        ResourceManager() as manager,
        pytest.raises(WorkerDiedError) as caught,
        open_cluster(manager, "hungry", world_size=1, resources={"full": 1}) as hungry,
    ):
        hungry.sleep(100, timeout_s=90)
    error = caught.value
    assert "ran out of memory; use smaller batches" in str(error), error
    assert (error.cluster, error.rank) == ("hungry", 0)
    assert error.method in ("sleep", "__init__"), error  # a busy machine may be late with the call
    assert error.method == "__init__" or (error.pid and error.node), error


def main() -> None:
    """Start two nodes, place roles on them and run a pipeline; add two, lose two, and fill one."""
    ray_cluster = RayCluster(
        initialize_head=True, head_node_args={"num_cpus": 4, "num_gpus": 2, "include_dashboard": False}
    )
    os.environ["RAY_ADDRESS"] = ray_cluster.address
    nodes = [ray_cluster.add_node(num_cpus=4, num_gpus=2)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            with ResourceManager(num_nodes=2, num_gpus_per_node=2) as manager:
                check_placement(manager)
                check_models(manager, Path(folder))
            check_shipped_code(Path(folder))
            check_pipeline(Path(folder))
        nodes += [ray_cluster.add_node(num_cpus=2, resources={"ssd": 2})]
        nodes += [ray_cluster.add_node(num_cpus=2, num_gpus=2)]
        check_four_nodes()
        check_chaos(ray_cluster, nodes[1])
        check_lost_node(ray_cluster, [nodes[0], nodes[2]])
        check_out_of_memory(ray_cluster)
    finally:
        ray_cluster.shutdown()  # type: ignore[no-untyped-call]  # Ray leaves it untyped
    sys.stdout.write("all nodes kept the contract\n")


if __name__ == "__main__":
    main()
