"""Configurations keep what the user wrote, and say what is impossible."""

import copy
import pickle
from typing import Any

import pytest

from roll_executor import (
    CallTimeoutError,
    Cluster,
    ConfigError,
    Where,
    Worker,
    WorkerClassError,
    WorkerConfig,
)
from roll_executor.sizes import size_of, size_of_parts
from roll_executor.testing import ContractWorker
from roll_executor.worker_config import environment_of
from roll_resources import ResourceManager


class Placed(Worker):
    def devices(self) -> tuple[int, ...]:
        return self.device_ids


def test_nothing_derived_is_written_back() -> None:
    config = WorkerConfig(name="r", device_mapping="0-3", num_gpus_per_worker=2)
    before = copy.deepcopy(config)
    with (
        ResourceManager(num_gpus_per_node=4, runtime="local") as manager,
        Cluster("r", Placed, manager, config) as cluster,
    ):
        assert cluster.world_size == 2
        assert cluster.execute_all_sync("devices") == [(0, 1), (2, 3)]
    assert config == before


def test_environments_are_text() -> None:
    config = WorkerConfig(name="r", system_envs={"A": "x", "B": 2, "C": True, "D": None, "E": 0.5})
    assert environment_of(config) == {"A": "x", "B": "2", "C": "1", "E": "0.5"}
    with pytest.raises(ConfigError, match=r"r\.system_envs\.L"):
        environment_of(WorkerConfig(name="r", system_envs={"L": [1]}))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"restart": "sometimes"}, "'never' or 'on_failure'"),
        ({"max_concurrency": 0}, "max_concurrency is 0"),
        ({"timeout_s": -1}, "timeout_s is -1"),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, Any], word: str) -> None:
    with ResourceManager(runtime="local") as manager, pytest.raises(ConfigError, match=word):
        Cluster("r", ContractWorker, manager, WorkerConfig(**changes))


@pytest.mark.parametrize(
    ("candidate", "word"),
    [
        ("nowhere.at.all.Worker", "cannot be imported"),
        ("roll_executor.testing.NoSuchWorker", "ContractWorker"),
        ("Worker", "dotted path"),
        (None, "give a class"),
        (3, "give a class"),
    ],
)
def test_what_is_no_worker_class_is_refused(candidate: Any, word: str) -> None:
    with ResourceManager(runtime="local") as manager, pytest.raises(WorkerClassError, match=word):
        Cluster("r", candidate, manager, WorkerConfig())


def test_a_worker_alone_stands_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "CLUSTER_NAME": "c"}.items():
        monkeypatch.setenv(name, value)
    worker = Worker(WorkerConfig())
    assert (worker.rank, worker.world_size, worker.local_rank, worker.worker_name) == (3, 4, 1, "c-3")
    assert (worker.rank_info.dp_rank, worker.rank_info.dp_size) == (3, 4)
    assert (worker.device_type, worker.collective_backend) == ("cpu", "gloo")


def test_errors_keep_their_fields_and_their_kind_through_pickle() -> None:
    where = Where(cluster="c", rank=1, method="m", node="n", pid=7)
    error = CallTimeoutError("late", where=where, notes=("x",)).with_notes("y")
    copy_ = pickle.loads(pickle.dumps(error))
    assert isinstance(copy_, CallTimeoutError)
    assert issubclass(CallTimeoutError, TimeoutError)
    assert (copy_.cluster, copy_.rank, copy_.method, copy_.node, copy_.pid) == ("c", 1, "m", "n", 7)
    assert str(copy_) == "late\nx\ny"


def test_bytes_are_counted_once_for_what_ranks_share() -> None:
    class Array:
        nbytes = 100

    shared, own = Array(), Array()
    assert size_of({"a": shared, "b": [b"123", "é", 1]}) == 100 + 3 + 2 + 8
    assert size_of_parts([((shared,), {}), ((shared,), {"own": own}), None]) == 200
