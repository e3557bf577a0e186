"""Weights on Ray: whatever pair, transport and size of buckets, a target holds the export of its source."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from roll_dispatch import Dispatch, register
from roll_executor import Cluster, WorkerError
from roll_pipelines import WorkerConfig
from roll_pipelines.config import ModelArguments, StrategyArguments, TrainingArguments
from roll_pipelines.workers import Worker
from roll_resources import ResourceManager
from roll_strategies import Bucket
from roll_strategies.testing import small_llama, whole_state

pytestmark = pytest.mark.ray

TRANSPORTS = ("object_store", "broadcast", "colocated")
TARGETS = ("hf_infer", "fsdp2_infer", "fsdp2_train")
BUCKETS = {"one byte": 1 / 1024**2, "a few thousand bytes": 3000 / 1024**2, "the whole model": 64.0}
"""Size of buckets in MiB."""
LIMIT_S = 4.0
"""How long a target may be silent."""


class SyncWorker(Worker):
    """Makes a new strategy whenever it is initialized, from the role that it is told."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config: Any) -> None:  # Any: see Worker
        super().initialize(pipeline_config)
        self.worker_config = pipeline_config.role
        self.start_strategy()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def change(self, factor: float) -> None:
        with torch.no_grad():
            for parameter in self.engine.unwrap_model().parameters():
                parameter.mul_(factor)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def held(self) -> tuple[int, dict[str, Tensor]]:
        return self.engine.weights_version, whole_state(self.engine)

    def update_parameter_in_bucket(self, bucket: Bucket) -> int:
        if getattr(self.pipeline_config, "silent_rank", None) == self.rank:
            threading.Event().wait(2.5 * LIMIT_S)  # silent for longer than the source waits
        return super().update_parameter_in_bucket(bucket)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model")
    model = small_llama(num_hidden_layers=1)
    model.save_pretrained(place)  # type: ignore[operator]  # a transformers model
    return place


def role(name: str, engine: str, model_dir: Path, **config: object) -> WorkerConfig:
    return WorkerConfig(
        name=name,
        world_size=2,
        strategy_args=StrategyArguments(strategy_name=engine, strategy_config=dict(config)),
        model_args=ModelArguments(model_name_or_path=str(model_dir)),
        training_args=TrainingArguments(learning_rate=1e-3),
        backend_timeout=60.0,
    )


@pytest.fixture(scope="module")
def clusters(ray_session: str, model_dir: Path) -> Iterator[tuple[Any, Any]]:  # Any: methods of SyncWorker
    """Two workers that send and two that receive, for all cases."""
    with ResourceManager() as manager:
        made = [
            Cluster(
                name=name,
                worker_cls=SyncWorker,
                resource_manager=manager,
                worker_config=role(name, "hf_infer", model_dir),
            )
            for name in ("source", "target")
        ]
        with made[0], made[1]:
            yield made[0], made[1]


def start(cluster: Any, config: WorkerConfig, **settings: object) -> None:  # Any: methods of SyncWorker
    cluster.initialize(pipeline_config=SimpleNamespace(seed=1, role=config, **settings))


@pytest.mark.parametrize("size", BUCKETS)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("engine", TARGETS)
def test_every_target_holds_the_export_of_its_source_bit_for_bit(
    clusters: tuple[Any, Any],  # Any: methods of SyncWorker
    model_dir: Path,
    tmp_path: Path,
    engine: str,
    transport: str,
    size: str,
) -> None:
    source, target = clusters
    start(
        source,
        role("source", "fsdp2_train", model_dir, update_transport=transport, digest="full"),
        model_update_buffer_size_mb=BUCKETS[size],
    )
    start(target, role("target", engine, model_dir, digest="full"))
    source.change(1.5)
    source.setup_model_update(name="pair", transport=target.transport())
    reports = source.start_model_update(name="pair", version=3)
    source.do_checkpoint(1, str(tmp_path / "export"))
    export = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "export").state_dict()
    assert reports[0]["targets"] == 2
    assert reports[0]["buckets"] == 1 if size == "the whole model" else reports[0]["buckets"] > 3
    for version, state in target.held():
        assert version == 3
        assert state.keys() == export.keys()
        for name, value in export.items():
            assert torch.equal(state[name], value), name


def test_a_silent_target_is_named_within_the_timeout_and_the_next_update_arrives(
    clusters: tuple[Any, Any],  # Any: methods of SyncWorker
    model_dir: Path,
) -> None:
    source, target = clusters
    sender = role("source", "fsdp2_train", model_dir, update_transport="broadcast")
    sender.backend_timeout = LIMIT_S
    start(source, sender, model_update_buffer_size_mb=BUCKETS["a few thousand bytes"])
    start(target, role("target", "hf_infer", model_dir), silent_rank=1)
    source.setup_model_update(name="pair", transport=target.transport())
    started = time.monotonic()
    with pytest.raises(WorkerError, match=r"update 4 failed in put of bucket 0 \('.*' and on\)") as caught:
        source.start_model_update(name="pair", version=4)
    assert time.monotonic() - started < 5 * LIMIT_S
    assert f"ranks [1] did not answer update_parameter_in_bucket() within {LIMIT_S} s" in str(caught.value)
    start(target, role("target", "hf_infer", model_dir))
    source.start_model_update(name="pair", version=5)
    assert [version for version, _ in target.held()] == [5, 5]
