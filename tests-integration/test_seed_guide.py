"""Every code block of the seed guide runs as printed, with a stated prelude for the names it leaves open."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import seed_blocks as seed
import seed_package
import torch
import yaml

from roll_pipelines.cli.plan import plan_of
from roll_pipelines.config import BaseConfig, WorkerConfig
from roll_pipelines.config.load import Loaded, load_config
from roll_pipelines.config.machine import Machine

SEED_FOLDER: Path = seed.SEED_FOLDER
pytestmark = pytest.mark.skipif(not SEED_FOLDER.is_dir(), reason=f"the seed guide is not at {SEED_FOLDER}")

MACHINE = Machine(strategies=frozenset({"fsdp2_train", "megatron_train", "vllm", "mock_train", "mock_infer"}))
MOCKS = [
    "student.strategy_args={strategy_name: mock_train}",
    "teacher.strategy_args={strategy_name: mock_infer}",
    "teacher.num_gpus_per_worker=4",
]
"""The guide's engines replaced by those that need neither devices nor a model."""

Namespace = dict[str, Any]  # Any: what the guide's blocks find and leave behind


def all_blocks() -> list[Any]:  # Any: seed_blocks.Block
    return list(seed.blocks(seed.seed_text()))


def block(start: str, *, number: int = 0) -> str:
    """Returns the block that has a line beginning so; `number` chooses among several."""
    found = [
        b.text for b in all_blocks() if any(line.strip().startswith(start) for line in b.text.splitlines())
    ]
    return str(found[number])


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with `my_package`, importable here and, through PYTHONPATH, in workers."""
    folder = tmp_path_factory.mktemp("seed")
    workers = [
        block("class CustomWorker"),
        block("class CustomTrainWorker"),
        block("class DataProcessWorker"),
    ]
    pipeline = [block("class CustomPipeline(BasePipeline)"), block("class CustomPipelineConfig")]
    printed = {"worker": workers, "pipeline": pipeline, "transform": [block("class TransformWorker")]}
    seed_package.write_package(folder, {name: "\n\n\n".join(texts) for name, texts in printed.items()})
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
        del sys.modules[name]


def importable(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def loaded(text: str, folder: Path, *overrides: str) -> Loaded:
    path = folder / "run.yaml"
    path.write_text(text)
    return load_config(path, overrides, machine=MACHINE)


def test_the_guide_has_the_blocks_that_are_run_here() -> None:
    kinds = [b.kind for b in all_blocks()]

    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "python": 19,
        "yaml": 7,
        "formula": 3,
        "names": 3,
    }


@pytest.mark.parametrize(
    ("start", "interface"),
    [
        ("initialize(...)", "InferenceStrategy"),
        ("train_step(batch, loss_func)", "TrainStrategy"),
        ("op_compute_log_probs(...)", "TrainStrategy"),
    ],
)
def test_the_strategy_interfaces_have_every_method_that_is_listed(start: str, interface: str) -> None:
    strategy = getattr(importlib.import_module("roll.distributed.strategy.strategy"), interface)
    missing = [
        line
        for line in block(start).splitlines()
        if not callable(getattr(strategy, line.partition("(")[0], None))
    ]

    assert missing == []


@pytest.mark.parametrize(
    ("start", "number", "role", "sizes"),
    [
        ("device_mapping: [0, 1, 2, 3]", 0, "actor_infer", (2, 2)),
        ("fsdp_size: 2", 0, "actor_train", (2, 1)),
        ("pipeline_model_parallel_size: 1", 0, "actor_train", (2, 1)),
        ("fsdp_size: 8", 0, "student", (8, 1)),
        ("pipeline_model_parallel_size: 2", 0, "student", (4, 1)),
        ("device_mapping: list(range(0, 8))", 0, "student", (8, 1)),
    ],
)
def test_every_role_of_a_yaml_block_loads_and_plans_on_a_node_of_eight_devices(
    package: Path, start: str, number: int, role: str, sizes: tuple[int, int]
) -> None:
    """Two blocks name an engine and no devices; they get as many as their parallel sizes ask for."""
    values = yaml.safe_load(block(start, number=number))[role]
    if "device_mapping" not in values and "fsdp_size" in values.get("strategy_args", {}).get(
        "strategy_config", {}
    ):
        values["device_mapping"] = "0-7"
    elif "device_mapping" not in values:
        values["device_mapping"] = "0-3"
    text = yaml.safe_dump({"student": values}) + "pipeline_cls: my_package.pipeline.RunningPipeline\n"

    config = loaded(text, package, "num_gpus_per_node=8").config

    student = config.roles()["student"]
    assert (student.world_size, student.num_gpus_per_worker) == sizes
    devices = [device.global_id for place in plan_of(config)["student"] for device in place.devices]
    assert devices == list(student.device_ids())


def test_the_formulas_hold(package: Path) -> None:
    role = WorkerConfig(**yaml.safe_load("{device_mapping: 'list(range(0, 8))', num_gpus_per_worker: 1}"))
    names: Namespace = {
        "device_mapping": list(range(4)),
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 1,
    }
    for line in block("num_gpus_per_worker = tensor").splitlines():
        name, middle, value = line.split(" = ")
        names[name] = eval(middle, names)
        assert names[name] == int(value)
    names |= {"device_mapping": role.device_ids(), "num_gpus_per_worker": role.num_gpus_per_worker}
    for start in ("world_size = len(device_mapping) /", "world_size = len(device_mapping)"):
        exec(block(start, number=-1).splitlines()[-1], names)
        assert names["world_size"] == role.world_size


def test_the_custom_pipeline_loads_as_printed_with_its_configuration_class_beside_it(package: Path) -> None:
    text = block("pipeline_cls: my_package.pipeline.CustomPipeline")
    found = loaded(
        text, package, "config_cls=my_package.pipeline.CustomPipelineConfig", "num_gpus_per_node=8"
    )

    assert found.pipeline_cls.__name__ == "CustomPipeline"
    assert vars(found.config)["custom_option"] == 1
    roles = found.config.roles()
    assert {name: (role.world_size, role.num_gpus_per_worker) for name, role in roles.items()} == {
        "student": (4, 1),
        "teacher": (1, 4),
    }
    places = plan_of(found.config)
    assert [[d.global_id for d in p.devices] for p in places["student"]] == [[0], [1], [2], [3]]
    assert [[d.global_id for d in p.devices] for p in places["teacher"]] == [[4, 5, 6, 7]]


def test_the_custom_pipeline_runs_with_mock_engines(package: Path) -> None:
    text = block("pipeline_cls: my_package.pipeline.CustomPipeline")
    settings = [
        "num_gpus_per_node=8",
        "runtime=local",
        "max_steps=2",
        f"output_dir={package}/custom",
        "track_with=jsonl",
    ]
    settings += [
        "pipeline_cls=my_package.pipeline.RunningPipeline",
        "~student.strategy_args",
        "~teacher.strategy_args",
    ]
    found = loaded(text, package, *settings, *MOCKS)

    with found.pipeline_cls(found.config) as pipeline:
        pipeline.run()
        assert pipeline.student.world_size == 4
        assert pipeline.state.step == 1
    assert (package / "custom" / "checkpoints" / "checkpoint-1" / "student").is_dir()


def test_a_worker_without_a_strategy_processes_its_share(package: Path) -> None:
    pipeline = importlib.import_module("my_package.pipeline")
    data_proto = importlib.import_module("roll.distributed.scheduler.protocol").DataProto
    config = pipeline.CustomPipelineConfig(
        runtime="local", output_dir=str(package / "process"), track_with=[]
    )
    config.student.worker_cls, config.student.world_size = "my_package.worker.DataProcessWorker", 2
    with pipeline.CustomPipeline(config) as self:
        self.run()
        names: Namespace = {"self": self, "Cluster": importlib.import_module("roll_executor").Cluster}
        exec(block("self.student = Cluster("), names)
        self.student.initialize(pipeline_config=config)
        answer = self.student.process(data_proto.from_single_dict({"input": torch.arange(6)}))

        assert answer.batch["doubled"].tolist() == [0, 2, 4, 6, 8, 10]


def test_a_custom_worker_computes_without_any_initialization(package: Path) -> None:
    executor = importlib.import_module("roll_executor")
    data_proto = importlib.import_module("roll.distributed.scheduler.protocol").DataProto
    with importlib.import_module("roll_resources").ResourceManager(runtime="local") as manager:
        role = WorkerConfig(name="custom", world_size=3)
        cluster = executor.Cluster(
            name="custom",
            worker_cls="my_package.worker.CustomWorker",
            resource_manager=manager,
            worker_config=role,
        )
        with cluster:
            answer = cluster.compute(data_proto.from_single_dict({"input": torch.arange(5)}))

    assert answer.batch["doubled"].tolist() == [0, 2, 4, 6, 8]


def test_the_resource_manager_is_made_from_the_configuration() -> None:
    class Pipeline:
        pipeline_config = BaseConfig(num_nodes=1, num_gpus_per_node=8)

    names: Namespace = {
        "self": Pipeline(),
        "ResourceManager": importlib.import_module("roll_resources").ResourceManager,
    }
    exec(block("self.resource_manager = "), names)

    assert names["self"].resource_manager.num_gpus_per_node == 8
    names["self"].resource_manager.close()


@pytest.mark.ray
def test_two_roles_train_and_send_weights_and_checkpoint_on_ray(package: Path, ray_session: str) -> None:
    pipeline = importlib.import_module("my_package.pipeline")
    config = pipeline.CustomPipelineConfig(
        output_dir=str(package / "roles"), track_with=[], max_steps=3, system_envs=importable(package)
    )
    config.student.strategy_args.strategy_name, config.student.world_size = "mock_train", 2
    config.teacher.strategy_args.strategy_name = "mock_infer"
    with pipeline.CustomPipeline(config) as self:
        names: Namespace = {"self": self, "ray": importlib.import_module("ray"), "global_step": 2}
        names["DataProto"] = importlib.import_module("roll.distributed.scheduler.protocol").DataProto
        rows = torch.arange(8).reshape(4, 2)
        names["batch_dict"] = {
            "input_ids": rows,
            "attention_mask": torch.ones_like(rows),
            "labels": rows.clone(),
        }
        exec(block("clusters = self.create_clusters_parallel"), names)
        exec(block("batch = DataProto.from_single_dict"), names)
        exec(block("ray.get("), names)
        assert names["result"].meta_info["metrics"]
        names["ray"].get(self.teacher.initialize(pipeline_config=config, blocking=False))
        exec(block("result_refs = self.student.train_step", number=-1), names)
        assert names["result"].meta_info["metrics"]
        exec(block("self.set_model_update_pair("), names)
        exec(block("model_update_metrics = "), names)
        assert any(name.endswith("seconds") for name in names["model_update_metrics"])
        names["batch"] = names["DataProto"].from_single_dict({"input_ids": rows})
        exec(block("teacher_output = "), names | {"train_metrics": None})
        exec(block("self.set_checkpoint_clusters("), names)
        exec(block("self.do_checkpoint("), names)
        exec(block("# Avoid this."), names)
    assert (package / "roles" / "checkpoints" / "checkpoint-2" / "student").is_dir()


def test_a_worker_trains_through_its_strategy(package: Path) -> None:
    """The guide's first block stands inside a worker's method: `self` is the worker, `data` its share."""
    worker = importlib.import_module("my_package.worker")
    data_proto = importlib.import_module("roll.distributed.scheduler.protocol").DataProto
    testing = importlib.import_module("roll_strategies")
    context = testing.StrategyContext(strategy_name="mock_train")
    strategy = testing.build_strategy(context)
    strategy.initialize(model_provider=None)
    rows = torch.arange(8).reshape(4, 2)
    data = data_proto.from_single_dict(
        {"input_ids": rows, "attention_mask": torch.ones_like(rows), "labels": rows}
    )
    data.meta_info = {"loss_mask_keys": ["labels"]}

    class Owner:
        loss_func = worker.StudentWorker.loss_func

    owner = Owner()
    vars(owner)["strategy"] = strategy
    names: Namespace = {"self": owner, "data": data}
    exec(block("metrics = self.strategy.train_step("), names)

    assert names["metrics"]


@pytest.mark.ray
def test_the_minimal_pipeline_without_a_strategy_runs_on_ray(package: Path, ray_session: str) -> None:
    transform = importlib.import_module("my_package.transform")
    config = transform.TransformConfig(
        output_dir=str(package / "transform"), track_with=[], system_envs=importable(package)
    )
    config.transform.world_size = 2
    with transform.TransformPipeline(config) as pipeline:
        pipeline.run()

    assert pipeline.outputs == [[0, 2, 4, 6], [2, 4, 6, 8], [4, 6, 8, 10]]
