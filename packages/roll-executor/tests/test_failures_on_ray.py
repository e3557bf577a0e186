"""Workers that fail on Ray: every failure ends in one typed error, soon, and leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray

from roll_dispatch import Dispatch, register
from roll_executor import (
    CallTimeoutError,
    Cluster,
    Where,
    Worker,
    WorkerColdError,
    WorkerConfig,
    WorkerDiedError,
    WorkerError,
    WorkerRaisedError,
    create_clusters,
)
from roll_executor.on_ray import translate
from roll_resources import ResourceManager

pytestmark = pytest.mark.ray


class FragileWorker(Worker):
    def __init__(self, worker_config: Any) -> None:
        super().__init__(worker_config)
        self.initialized_with: object = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config: Any) -> None:
        super().initialize(pipeline_config)
        self.initialized_with = pipeline_config

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def fail(self, rank: int, how: str) -> int:
        """End in the given way on one rank; wait on the others as if for a peer."""
        if self.rank != rank:
            threading.Event().wait(60)
        sys.stderr.write("my last words\n")
        sys.stderr.flush()
        if how == "raise":
            raise ValueError("told to raise")
        if how == "exit":
            sys.exit(3)
        if how == "os_exit":
            os._exit(4)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return self.rank

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def stop(self, rank: int) -> int:
        """Stop the process of one rank as a debugger would."""
        if self.rank == rank:
            os.kill(os.getpid(), signal.SIGSTOP)
        return self.rank

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def hang(self, rank: int) -> int:
        """Never return on one rank."""
        if self.rank == rank:
            threading.Event().wait(60)
        return self.rank

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def echo(self, rows: list[int]) -> list[int]:
        return rows

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def config(self) -> object:
        return self.initialized_with

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def commit_update(self) -> None:
        pass

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def pid(self) -> int:
        return os.getpid()


def open_cluster(manager: ResourceManager, name: str = "fragile", **changes: Any) -> Cluster:
    config = WorkerConfig(name=name, **({"world_size": 2, "kill_peers_after_s": 1.0} | changes))
    return Cluster(name=name, worker_cls=FragileWorker, resource_manager=manager, worker_config=config)


def timed(call: Callable[[], object]) -> tuple[WorkerError, float]:
    began = time.monotonic()
    with pytest.raises(WorkerError) as caught:
        call()
    return caught.value, time.monotonic() - began


def gone(pid: int, within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # also when it ends between opening and reading
            return True
        if state == "Z":
            return True
        threading.Event().wait(0.05)
    return False


@pytest.mark.parametrize(
    ("how", "kind", "word"),
    [
        ("raise", WorkerRaisedError, "told to raise"),
        ("exit", WorkerDiedError, "has died"),
        ("os_exit", WorkerDiedError, "has died"),
        ("kill", WorkerDiedError, "has died"),
    ],
)
def test_a_failing_rank_releases_its_peers_and_is_told_within_five_seconds(
    ray_session: str, how: str, kind: type[WorkerError], word: str
) -> None:
    with (
        ResourceManager() as manager,
        open_cluster(manager) as cluster,
        open_cluster(manager, "other") as other,
    ):
        pids = cluster.pid()
        error, seconds = timed(lambda: cluster.fail(1, how))
        assert seconds < 5
        assert type(error) is kind
        assert (error.cluster, error.rank, error.method, error.pid) == ("fragile", 1, "fail", pids[1])
        assert word in str(error)
        assert str(error).count("my last words") == 1
        assert f"Last lines of pid {pids[1]}" in str(error)
        assert "Ranks [0] did not leave within 1 s" in str(error)
        assert gone(pids[0])
        again, seconds = timed(lambda: cluster.echo([1, 2]))
        assert isinstance(again, WorkerDiedError)
        assert seconds < 5
        assert other.echo([1, 2]) == [1, 2]


def test_an_error_of_ray_about_memory_names_the_worker_and_the_way_out() -> None:
    where = Where(cluster="actor_train", rank=3, method="train_step", node="10.0.0.1", pid=7)
    full = ray.exceptions.OutOfMemoryError("15 of 16 GB")  # type: ignore[no-untyped-call]  # Ray's own
    told = translate(full, where)
    assert isinstance(told, WorkerDiedError)
    assert told.where == where
    assert "actor_train-3.train_step (node 10.0.0.1, pid 7) was ended because its node ran out" in str(told)
    assert "use smaller batches" in str(told)
    assert "15 of 16 GB" in str(told)


def test_peers_are_released_although_nobody_waits_for_the_call(ray_session: str) -> None:
    with ResourceManager() as manager, open_cluster(manager) as cluster:
        pids = cluster.pid()
        pending = cluster.fail(1, "raise", blocking=False)
        assert gone(pids[0], within_s=10)
        error, seconds = timed(pending.result)
        assert (error.rank, type(error)) == (1, WorkerRaisedError)
        assert seconds < 1


@pytest.mark.parametrize("way", ["hang", "stop"])
def test_a_late_call_is_told_within_five_seconds_of_its_deadline(ray_session: str, way: str) -> None:
    with ResourceManager() as manager, open_cluster(manager) as cluster:
        pids = cluster.pid()
        error, seconds = timed(lambda: getattr(cluster, way)(1, timeout_s=0.5))
        assert isinstance(error, CallTimeoutError)
        assert seconds < 5.5
        assert "ranks [0] answered, ranks [1] did not" in str(error)
        assert re.search(r"The object store of node \w{6} has \d+ of [1-9]\d* MB in use", str(error))
        told = "threading.Event().wait(60)" if way == "hang" else "does not answer its control channel"
        assert told in str(error)
        assert gone(pids[1])


def test_the_deadline_of_a_role_and_of_a_call_nobody_waits_for_count_too(ray_session: str) -> None:
    with ResourceManager() as manager, open_cluster(manager, timeout_s=0.5) as cluster:
        pids = cluster.pid()
        cluster.hang(0, blocking=False)
        assert gone(pids[0], within_s=10)


def test_a_stateless_role_is_restarted_and_initialized_again(ray_session: str) -> None:
    with ResourceManager() as manager, open_cluster(manager, restart="on_failure") as cluster:
        cluster.initialize("the configuration")
        pids = cluster.pid()
        for _ in range(2):
            error, _ = timed(lambda: cluster.fail(1, "os_exit"))
            assert isinstance(error, WorkerDiedError)
            assert cluster.echo([1, 2, 3]) == [1, 2, 3]
            assert cluster.config() == ["the configuration"] * 2
        assert set(cluster.pid()).isdisjoint(pids)


def test_a_restarted_worker_that_lacks_weights_takes_no_call_before_the_next_push(ray_session: str) -> None:
    with (
        ResourceManager() as manager,
        open_cluster(manager, world_size=1, restart="on_failure", cold_until="commit_update") as cluster,
    ):
        assert cluster.echo([1]) == [1]
        timed(lambda: cluster.fail(0, "kill"))
        error, _ = timed(lambda: cluster.echo([1]))
        assert isinstance(error, WorkerColdError)
        assert [entry.state for entry in cluster.health()] == ["cold"]
        cluster.commit_update()
        assert cluster.echo([1]) == [1]


def test_health_tells_idle_busy_silent_and_dead(ray_session: str) -> None:
    with (
        ResourceManager() as manager,
        open_cluster(manager, world_size=4, kill_peers_after_s=None) as cluster,
    ):
        pids = cluster.pid()
        os.kill(pids[2], signal.SIGSTOP)
        os.kill(pids[3], signal.SIGKILL)
        assert gone(pids[3])
        busy = cluster.workers[1].hang.remote(1)
        deadline = time.monotonic() + 10
        states = [entry.state for entry in cluster.health()]
        while states != ["idle", "busy", "silent", "dead"] and time.monotonic() < deadline:
            states = [entry.state for entry in cluster.health()]
        assert states == ["idle", "busy", "silent", "dead"]
        assert cluster.health()[1].running[0][0] == "hang"
        del busy


def test_an_interrupted_run_ends_its_workers_within_seconds(ray_session: str, tmp_path: Any) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys, time
            from roll_dispatch import Dispatch, register
            from roll_executor import Cluster, Worker, WorkerConfig
            from roll_resources import ResourceManager

            class Sleeper(Worker):
                @register(dispatch_mode=Dispatch.ONE_TO_ALL)
                def pid(self):
                    import os
                    return os.getpid()

                @register(dispatch_mode=Dispatch.ONE_TO_ALL)
                def sleep(self):
                    time.sleep(100)

            with ResourceManager(address=sys.argv[1]) as manager:
                with Cluster("sleeper", Sleeper, manager, WorkerConfig(world_size=2)) as cluster:
                    print("pids", *cluster.pid(), flush=True)
                    cluster.sleep()
            """
        )
    )
    run = subprocess.Popen(
        [sys.executable, str(script), ray_session], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    pids: list[int] = []
    for line in run.stdout:
        if line.startswith("pids"):
            pids = [int(word) for word in line.split()[1:]]
            break
    assert len(pids) == 2, run.stderr.read() if run.stderr else ""
    began = time.monotonic()
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    assert time.monotonic() - began < 10
    assert all(gone(pid) for pid in pids)


def test_a_failure_while_several_clusters_are_created_closes_the_others(ray_session: str) -> None:
    class Broken(Worker):
        def __init__(self, worker_config: Any) -> None:
            raise RuntimeError("told to fail")

    with ResourceManager() as manager:
        config = WorkerConfig(name="x", world_size=1)
        with pytest.raises(WorkerError, match="told to fail"):
            create_clusters(
                {"good": ("good", FragileWorker, config), "bad": ("bad", Broken, config)}, manager
            )
        with open_cluster(manager, "good") as cluster:  # its name is free again
            assert cluster.echo([1]) == [1]
