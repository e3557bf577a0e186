"""A call gives the same by every transfer backend, one that somebody else wrote included."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from third_parties import unpacked_wheel

from roll_dispatch import Dispatch, register
from roll_executor import Cluster, Transfer, Worker, WorkerConfig, transfer_backends
from roll_protocol import DataProto
from roll_protocol.testing import data_protos
from roll_resources import ResourceManager

HERE = Path(__file__).resolve().parent
Ways = tuple[Cluster, dict[str, Transfer | None], Path]
MANY = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)


class Echo(Worker):
    """Gives back what it got."""

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def split(self, data: DataProto) -> DataProto:
        return data

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def spoil(self, data: DataProto) -> DataProto:
        """Overwrite what was received, and return it as it came."""
        before = data.clone()
        for name in list(data.keys()):
            column = data[name]
            if isinstance(column, torch.Tensor) and not column.is_nested:
                column.detach().zero_()
            elif isinstance(column, np.ndarray) and column.dtype != object:
                column[...] = np.zeros((), dtype=column.dtype)
        return before


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    site = unpacked_wheel(HERE / "third_party_transfer", tmp_path_factory.mktemp("wheel"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        yield


@pytest.fixture(scope="module", params=["local", pytest.param("ray", marks=pytest.mark.ray)])
def ways(
    request: pytest.FixtureRequest, installed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ways]:
    """Two workers, and the backends by which one may call them."""
    if request.param == "ray":
        request.getfixturevalue("ray_session")
    folder = tmp_path_factory.mktemp("payloads")
    assert transfer_backends() == ["object_store", "files", "sqlite"]
    with ExitStack() as stack:
        manager = stack.enter_context(ResourceManager(runtime=request.param))
        config = WorkerConfig(name="echo", world_size=2)
        cluster = stack.enter_context(Cluster("echo", Echo, manager, config))
        files = Transfer("files", {"folder": str(folder), "min_bytes": 0})
        sqlite = Transfer("sqlite", {"file": str(folder / "payloads.db")})
        backends = [None, stack.enter_context(files), stack.enter_context(sqlite)]
        yield cluster, dict(zip(transfer_backends(), backends, strict=True)), folder
    assert list(folder.iterdir()) == []


def outcomes(ways: Ways, call: Callable[[Cluster], object]) -> list[object]:
    """Return what a call gives by each backend: its result, or what kind of error."""
    cluster, backends, _ = ways
    found: list[object] = []
    for transfer in backends.values():
        cluster._transfer = transfer  # the same two workers for all: starting them is what takes long
        try:
            found.append(call(cluster))
        except Exception as error:  # noqa: BLE001  # a batch that cannot be split is one by no backend
            found.append(type(error))
    return found


def paths(ways: Ways) -> list[str]:
    return [path.name for path in ways[2].glob("roll-*/*")]


@given(batch=data_protos())
@MANY
def test_a_batch_is_split_and_collected_alike_by_every_backend(ways: Ways, batch: DataProto) -> None:
    plain, *others = outcomes(ways, lambda cluster: cluster.split(batch))
    assert all(found == plain for found in others)
    assert paths(ways) == []


@given(batch=data_protos())
@MANY
def test_what_one_rank_writes_into_a_batch_no_other_sees(ways: Ways, batch: DataProto) -> None:
    untouched = batch.clone()
    for found in outcomes(ways, lambda cluster: cluster.spoil(batch)):
        assert found == [untouched, untouched]
    assert batch == untouched


def test_a_batch_of_every_kind_of_column_comes_back_whole(ways: Ways) -> None:
    rows = 4
    ragged = torch.nested.as_nested_tensor([torch.arange(n) for n in (3, 0, 2, 1)], layout=torch.jagged)
    tensors = {"ids": torch.arange(rows * 3).view(rows, 3), "half": torch.ones(rows, dtype=torch.bfloat16)}
    batch = DataProto.from_dict(
        {**tensors, "ragged": ragged},
        {"text": ["a", None, {"b": 1}, [2]], "score": np.arange(rows)},
        meta_info={"scale": torch.ones(2), "name": "x"},
    )
    assert outcomes(ways, lambda cluster: cluster.split(batch)) == [batch] * 3
    assert outcomes(ways, lambda cluster: cluster.split(batch, blocking=False).result()) == [batch] * 3
