"""What other packages do around a call."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from roll_executor import Worker, WorkerConfig, WorkerRaisedError
from roll_executor.hooks import Hooks
from roll_executor.host import Header, Host
from roll_executor.place import WorkerPlace


class Adder(Worker):
    def add(self, number: int, *, more: int = 0) -> int:
        return number + more

    def fail(self) -> None:
        raise ValueError("no")


class Recording:
    def __init__(self, name: str, heard: list[tuple[object, ...]]) -> None:
        self.name = name
        self.heard = heard

    def start_worker(self, worker: Any) -> None:
        self.heard.append((self.name, "start", worker.worker_name))

    def before_call(self, worker: Any, method: str, prefetch: bool, args: Any, kwargs: Any) -> Any:
        self.heard.append((self.name, "before", method, prefetch))
        return tuple(argument + 1 for argument in args), kwargs

    def after_call(self, worker: Any, method: str, clear_cache: bool) -> None:
        self.heard.append((self.name, "after", method, clear_cache))


class OnlyRandom:
    def __init__(self) -> None:
        self.state = 5

    def random_state(self) -> int:
        return self.state

    def set_random_state(self, state: Any) -> None:
        self.state = state


def host_with(*hooks: object) -> Host:
    place = WorkerPlace(cluster_name="adder", rank=2, world_size=3)
    return Host(lambda: Adder(WorkerConfig()), place=place, pid=1, hooks=Hooks(hooks))


def test_hooks_wrap_a_call_like_the_skins_of_an_onion() -> None:
    heard: list[tuple[object, ...]] = []
    host = host_with(Recording("a", heard), Recording("b", heard))
    result, _ = host.call(Header(method="add", prefetch=True, clear_cache=True), (1,), {"more": 10})
    assert result == 13
    assert heard == [
        ("a", "start", "adder-2"),
        ("b", "start", "adder-2"),
        ("a", "before", "add", True),
        ("b", "before", "add", True),
        ("b", "after", "add", True),
        ("a", "after", "add", True),
    ]


def test_after_call_is_told_although_the_method_raised() -> None:
    heard: list[tuple[object, ...]] = []
    with pytest.raises(WorkerRaisedError, match=r"adder-2\.fail"):
        host_with(Recording("a", heard)).call(Header(method="fail"), (), {})
    assert heard[-1] == ("a", "after", "fail", False)


def test_a_hook_has_only_the_methods_that_it_cares_for() -> None:
    hook = OnlyRandom()
    host = host_with(hook)
    assert host.call(Header(method="add"), (1,), {})[0] == 1
    assert host.hooks.random_state() == [5]
    host.hooks.set_random_state([7])
    assert hook.state == 7


class Sharing:
    """Notes that a call is made in a process that several workers share."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    @contextmanager
    def sharing_process(self, worker: Any, beside_others: bool) -> Iterator[None]:
        self.heard.append((worker.worker_name, beside_others))
        try:
            yield
        finally:
            self.heard.append("left")


@pytest.mark.parametrize("beside_others", [True, False])
def test_a_hook_knows_that_workers_share_a_process(beside_others: bool) -> None:
    hook = Sharing()
    host = host_with(hook, OnlyRandom())
    with (
        pytest.raises(WorkerRaisedError, match="no"),
        host.sharing_process(beside_others=beside_others),
    ):
        host.call(Header(method="fail"), (), {})
    assert hook.heard == [("adder-2", beside_others), "left"]
