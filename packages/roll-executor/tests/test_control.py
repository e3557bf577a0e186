"""The side door to a busy worker."""

import threading
from typing import Any

from roll_executor import Worker, WorkerConfig
from roll_executor.control import ControlServer, ask, ask_many
from roll_executor.hooks import Hooks
from roll_executor.host import Header, Host
from roll_executor.place import WorkerPlace


class Waiting(Worker):
    def __init__(self, worker_config: Any) -> None:
        super().__init__(worker_config)
        self.entered = threading.Event()
        self.leave = threading.Event()

    def wait(self) -> None:
        self.entered.set()
        self.leave.wait(20)


class Releasing:
    """A hook that releases whoever waits."""

    def abort(self, worker: Any) -> None:
        worker.leave.set()

    def end_worker(self, worker: Any) -> None:
        worker.entered.set()


def host_of_one(*hooks: object) -> Host:
    place = WorkerPlace(cluster_name="c", rank=0, world_size=1)
    return Host(lambda: Waiting(WorkerConfig()), place=place, pid=1, hooks=Hooks(hooks))


def test_a_busy_worker_tells_what_it_does_and_can_be_released() -> None:
    host = host_of_one(Releasing())
    server = ControlServer("127.0.0.1", token="secret", owner=lambda: host)
    call = threading.Thread(target=host.call, args=(Header(method="wait"), (), {}), name="caller")
    call.start()
    assert host.worker.entered.wait(5)
    status = ask(server.address, "secret", "status", 5.0)
    assert status is not None
    assert [name for name, _ in status["running"]] == ["wait"]
    told = ask(server.address, "secret", "stacks", 5.0)
    assert told is not None
    (stack,) = [text for name, text in told["stacks"].items() if name.startswith("caller")]
    assert "self.leave.wait(20)" in stack
    assert "host.py" not in stack
    assert ask(server.address, "secret", "abort", 5.0) == {"problems": []}
    call.join(5)
    assert not call.is_alive()
    status = ask(server.address, "secret", "status", 5.0)
    assert status is not None
    assert (status["running"], status["calls"]) == ([], 1)
    server.close()


def test_a_stranger_is_not_answered() -> None:
    host = host_of_one()
    server = ControlServer("127.0.0.1", token="secret", owner=lambda: host)
    assert ask(server.address, "wrong", "status", 1.0) is None
    assert ask_many([server.address], [0], "secret", "status", 5.0)[0]["built"] is True
    server.close()
    assert ask(server.address, "secret", "status", 0.5) is None


def test_a_hook_that_fails_to_abort_does_not_keep_the_others_from_it() -> None:
    class Failing:
        def abort(self, worker: Any) -> None:
            raise RuntimeError("no collective here")

    host = host_of_one(Failing(), Releasing())
    assert host.abort() == ["RuntimeError: no collective here"]
    assert host.worker.leave.is_set()


def test_a_worker_that_is_about_to_be_ended_is_told() -> None:
    host = host_of_one(Releasing())
    server = ControlServer("127.0.0.1", token="secret", owner=lambda: host)
    assert ask(server.address, "secret", "end", 5.0) == {"problems": []}
    assert host.worker.entered.is_set()
    server.close()
