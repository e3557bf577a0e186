"""Payloads that a backend carries: what is written, how it is read, and that nothing stays behind."""

import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from roll_dispatch import Dispatch, register
from roll_executor import (
    Cluster,
    ConfigError,
    Transfer,
    TransferError,
    Worker,
    WorkerConfig,
    WorkerDiedError,
    WorkerRaisedError,
    create_clusters,
    replay,
    transfer_backends,
)
from roll_resources import ResourceManager

MB = 1_000_000


class Block:
    """Bytes that tell how many they are and travel out of band, as a batch does."""

    def __init__(self, data: Any) -> None:  # Any: whatever has the buffer protocol
        self.data = memoryview(data)
        self.nbytes = self.data.nbytes

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:  # Any: object declares SupportsIndex
        return Block, (pickle.PickleBuffer(self.data.toreadonly()),)


class Carrier(Worker):
    """Tells what lies in the folder while it is called."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def look(self, block: Block, folder: str) -> tuple[int, bool, bytes]:
        return len(files_in(folder)), block.data.readonly, bytes(block.data[:4])

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def make(self, size: int) -> Block:
        return Block(bytes([self.rank]) * size)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def fail_beside(self, block: Block, rank: int) -> Block:
        if self.rank == rank:
            raise ValueError("told to fail")
        return block

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def die(self, block: Block, rank: int) -> Block:
        if self.rank == rank:
            os._exit(1)
        return block

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def stream(self, block: Block, count: int) -> Iterator[Block]:
        for place in range(count):
            yield Block(bytes(block.data[place : place + 1]) * 1000)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def ask(self, other: Any, folder: str) -> object:  # Any: a cluster
        return other.look(Block(b"abcd" * 1000), folder)


def files_in(folder: str | Path) -> list[str]:
    return [path.name for path in Path(folder).rglob("*") if path.is_file() and path.suffix != ".lock"]


@contextmanager
def opened(runtime: Any, folder: Path) -> Iterator[Cluster]:  # Any: "local" or "ray"
    with (
        ResourceManager(runtime=runtime) as manager,
        Transfer("files", {"folder": str(folder), "min_bytes": 1000}, run="tests") as transfer,
    ):
        config = WorkerConfig(name="carrier", world_size=2, restart="on_failure")
        clusters = create_clusters({"carrier": ("carrier", Carrier, config)}, manager, transfer=transfer)
        with clusters["carrier"] as cluster:
            yield cluster
    assert list(folder.iterdir()) == []


@pytest.fixture(scope="module", params=["local", pytest.param("ray", marks=pytest.mark.ray)])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, Path]]:
    """Two workers, and the folder through which their payloads travel."""
    if request.param == "ray":
        request.getfixturevalue("ray_session")
    folder = tmp_path_factory.mktemp("payloads")
    with opened(request.param, folder) as cluster:
        yield cluster, folder


def test_a_payload_of_several_ranks_is_one_file_that_goes_with_the_call(place: tuple[Cluster, Path]) -> None:
    cluster, folder = place
    assert cluster.look(Block(b"abcd" * MB), str(folder)) == [(1, True, b"abcd")] * 2
    assert files_in(folder) == []


def test_a_small_payload_writes_no_file(place: tuple[Cluster, Path]) -> None:
    cluster, folder = place
    assert cluster.look(Block(b"abcd"), str(folder)) == [(0, True, b"abcd")] * 2


def test_results_come_by_files_that_are_gone_when_they_are_there(place: tuple[Cluster, Path]) -> None:
    cluster, folder = place
    found = cluster.make(MB)
    assert files_in(folder) == []
    assert [(block.nbytes, block.data[0], block.data[-1]) for block in found] == [(MB, 0, 0), (MB, 1, 1)]
    assert all(block.data.readonly for block in found)
    assert cluster.stats()["make"].bytes_received == 2 * MB


def test_a_call_that_nobody_waits_for_lets_go_of_its_arguments(place: tuple[Cluster, Path]) -> None:
    cluster, folder = place
    pending = cluster.look(Block(b"abcd" * MB), str(folder), blocking=False)
    deadline = time.monotonic() + 20
    while files_in(folder) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert files_in(folder) == []
    assert pending.result() == [(1, True, b"abcd")] * 2
    assert [block.nbytes for block in cluster.make(MB, blocking=False).result()] == [MB, MB]


def test_a_stream_reads_its_argument_and_lets_go_of_it(place: tuple[Cluster, Path]) -> None:
    cluster, folder = place
    items = [(rank, item.data[0]) for rank, item in cluster.stream(Block(b"abcd" * MB), 3).by_rank()]
    assert sorted(items) == [(rank, letter) for rank in (0, 1) for letter in b"abc"]
    assert files_in(folder) == []


def test_a_failed_call_leaves_no_files(place: tuple[Cluster, Path]) -> None:
    cluster, folder = place
    with pytest.raises(WorkerRaisedError, match="told to fail"):
        cluster.fail_beside(Block(bytes(MB)), 1)
    assert files_in(folder) == []


@pytest.mark.parametrize("place", [pytest.param("ray", marks=pytest.mark.ray)], indirect=True)
def test_a_worker_that_calls_a_cluster_uses_its_backend(place: tuple[Cluster, Path]) -> None:
    cluster, folder = place
    with ResourceManager() as manager, Cluster("asking", Carrier, manager, WorkerConfig()) as other:
        assert other.ask(cluster, str(folder)) == [[(1, True, b"abcd")] * 2]
        assert files_in(folder) == []


@pytest.mark.parametrize("place", [pytest.param("ray", marks=pytest.mark.ray)], indirect=True)
def test_a_worker_that_died_leaves_no_files_and_reads_them_again_when_restarted(
    place: tuple[Cluster, Path],
) -> None:
    cluster, folder = place
    with pytest.raises(WorkerDiedError):
        cluster.die(Block(b"abcd" * MB), 1)
    assert files_in(folder) == []
    assert cluster.look(Block(b"abcd" * MB), str(folder)) == [(1, True, b"abcd")] * 2


def test_a_folder_that_a_node_does_not_see_is_an_error_of_the_call(place: tuple[Cluster, Path]) -> None:
    cluster, folder = place
    [run] = folder.glob("roll-*/")
    shutil.rmtree(run)
    with pytest.raises(TransferError, match="Every node must see the same folder"):
        cluster.look(Block(bytes(MB)), str(folder))
    with pytest.raises(WorkerRaisedError, match="Every node must see the same folder") as caught:
        cluster.make(MB)
    assert isinstance(caught.value.original, TransferError)
    run.mkdir()


def test_a_full_disk_is_an_error_before_anybody_is_called(tmp_path: Path) -> None:
    with opened("local", tmp_path) as cluster:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 * MB, limits[1]))
        try:
            with pytest.raises(TransferError, match=r"8 MB do not fit, \d+ MB are free") as caught:
                cluster.look(Block(bytes(8 * MB)), str(tmp_path))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert str(tmp_path) in str(pickle.loads(pickle.dumps(caught.value)))
        assert files_in(tmp_path) == []
        assert "look" not in cluster.stats()


@pytest.mark.parametrize("mapped", [True, False])
def test_what_was_read_stays_when_its_file_is_deleted(tmp_path: Path, mapped: bool) -> None:
    with Transfer("files", {"folder": str(tmp_path), "min_bytes": 0, "mapped": mapped}) as transfer:
        plain = [1, 2]
        assert transfer.backend.put(plain, call="one") is plain  # what does not tell its bytes rides along
        names = [transfer.backend.put(Block(data), call="one") for data in (b"", b"x" * MB, b"yz")]
        empty, large, small = [transfer.backend.get(name) for name in names]
        transfer.backend.delete("one")
        assert files_in(tmp_path) == []
        assert (bytes(empty.data), bytes(large.data), bytes(small.data)) == (b"", b"x" * MB, b"yz")
        with pytest.raises(TransferError, match="it is gone, for the call that it belongs to has ended"):
            transfer.backend.get(names[0])


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("length", [0, 10, 5000])
def test_a_file_that_is_not_whole_is_refused(tmp_path: Path, mapped: bool, length: int) -> None:
    with Transfer("files", {"folder": str(tmp_path), "min_bytes": 0, "mapped": mapped}) as transfer:
        name = transfer.backend.put(Block(bytes(10_000)), call="one")
        [path] = tmp_path.rglob(str(name))
        os.truncate(path, length)
        with pytest.raises(TransferError, match="it is not whole") as caught:
            transfer.backend.get(name)
        assert str(path) in str(caught.value)


def test_a_call_that_cannot_be_sent_leaves_no_files(place: tuple[Cluster, Path]) -> None:
    cluster, folder = place
    with pytest.raises(TypeError, match="pickle"):
        cluster.look(Block(bytes(MB)), threading.Lock())
    assert files_in(folder) == []


def test_a_folder_that_cannot_be_made_leaves_no_lock(tmp_path: Path) -> None:
    transfer = Transfer("files", {"folder": str(tmp_path)})
    (tmp_path / f"roll-{transfer.session}").touch()
    with pytest.raises(TransferError, match="File exists"):
        transfer.open()
    assert [path.suffix for path in tmp_path.iterdir()] == [""]


def test_runs_without_a_name_have_nothing_to_do_with_each_other(tmp_path: Path) -> None:
    left = Transfer("files", {"folder": str(tmp_path)})
    (tmp_path / f"roll-{left.session}").mkdir()  # its owner may live where its lock is not seen
    with Transfer("files", {"folder": str(tmp_path)}):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [f"roll-{left.session}"]


def test_a_recorded_call_runs_again_without_the_backend(tmp_path: Path) -> None:
    with opened("local", tmp_path / "payloads") as cluster, cluster.record(tmp_path / "records"):
        cluster.look(Block(b"abcd" * MB), str(tmp_path / "payloads"))
    assert replay(tmp_path / "records" / "0001-look", rank=1) == (0, True, b"abcd")


DRIVER = """
import sys, time
from roll_executor import Transfer
transfer = Transfer("files", {"folder": sys.argv[1], "min_bytes": 0}, run="a run").open()
(transfer.backend.folder / "payload").write_bytes(b"x")
print("ready", flush=True)
time.sleep(60)
"""


def test_what_a_killed_driver_left_goes_at_the_next_start_of_its_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    with driver.stdout, driver:
        assert driver.stdout.readline() == "ready\n"
        with Transfer("files", {"folder": str(tmp_path)}, run="a run"):
            assert len(files_in(tmp_path)) == 1  # it lives: its files are its own
        assert "in use" in caplog.text
        driver.send_signal(signal.SIGKILL)
    with Transfer("files", {"folder": str(tmp_path)}, run="another run"):
        assert len(files_in(tmp_path)) == 1
    with Transfer("files", {"folder": str(tmp_path)}, run="a run"):
        assert files_in(tmp_path) == []
    assert "an earlier start of this run had left" in caplog.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("file", {}, "no transfer backend 'file' is installed; there are object_store, files"),
        ("files", {}, "folder is None"),
        ("files", {"folder": "here"}, "give the absolute path"),
        ("files", {"folder": "/tmp", "min_byte": 1}, "no setting 'min_byte'; it has folder, min_bytes"),
        ("files", {"folder": "/tmp", "min_bytes": "1M"}, "min_bytes is '1M'"),
        ("files", {"folder": "/tmp", "mapped": "no"}, "mapped is 'no'"),
    ],
)
def test_settings_are_refused_before_anything_is_opened(
    name: str, settings: dict[str, object], message: str
) -> None:
    assert transfer_backends() == ["object_store", "files"]
    with pytest.raises(ConfigError, match=message):
        _ = Transfer(name, settings).backend


def test_a_backend_that_nobody_opened_is_refused(tmp_path: Path) -> None:
    transfer = Transfer("files", {"folder": str(tmp_path)})
    with ResourceManager(runtime="local") as manager, pytest.raises(ConfigError, match="use it in a `with`"):
        Cluster("carrier", Carrier, manager, WorkerConfig(), transfer=transfer)
