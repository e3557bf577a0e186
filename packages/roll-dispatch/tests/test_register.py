import inspect
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from roll_dispatch import (
    ArgumentError,
    Dispatch,
    Execute,
    RegisterError,
    Route,
    check_arguments,
    register,
    registered_methods,
)


def plain(self: object, rows: list[int], *, scale: int = 2) -> list[int]:
    """Scale rows."""
    return [scale * row for row in rows]


async def later(self: object, rows: list[int]) -> list[int]:
    """Scale rows later."""
    return rows


def stream(self: object, rows: list[int]) -> Iterator[int]:
    """Yield rows."""
    yield from rows


async def later_stream(self: object, rows: list[int]) -> AsyncIterator[int]:
    """Yield rows later."""
    for row in rows:
        yield row


@pytest.mark.parametrize("method", [plain, later, stream, later_stream])
def test_register_returns_the_very_method(method: Any) -> None:
    name, doc, signature, hints = (
        method.__name__,
        method.__doc__,
        inspect.signature(method),
        method.__annotations__,
    )
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    before = [kind(method) for kind in kinds]

    marked = register(Dispatch.DP_MP_COMPUTE)(method)

    assert marked is method
    assert (marked.__name__, marked.__doc__, inspect.signature(marked)) == (name, doc, signature)
    assert marked.__annotations__ == hints
    assert [kind(marked) for kind in kinds] == before


class Worker:
    @register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def initialize(self, config: dict[str, int]) -> None: ...

    @register(
        dispatch_mode="DP_MP_COMPUTE",
        clear_cache=True,
        prefetch=True,
        timeout_s=5,
        reducer="mean",
        empty="skip",
    )
    def train_step(self, batch: list[int], scale: int = 1, *, flag: bool = False) -> float:
        return 0.0

    @register()
    def seed(self, seeds: int) -> None: ...

    def private(self) -> None: ...


def test_registered_methods_lists_what_was_recorded() -> None:
    assert registered_methods(Worker) == {
        "initialize": Route(
            dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.RANK_ZERO, parameters=("config",)
        ),
        "train_step": Route(
            dispatch_mode=Dispatch.DP_MP_COMPUTE.with_options(empty="skip"),
            execute_mode=Execute.ALL,
            clear_cache=True,
            prefetch=True,
            timeout_s=5,
            reducer="mean",
            parameters=("batch", "scale"),
        ),
        "seed": Route(dispatch_mode=Dispatch.ALL_TO_ALL, parameters=("seeds",)),
    }


def test_nothing_is_cleared_or_prefetched_unless_it_is_asked_for() -> None:
    route = registered_methods(Worker)["seed"]
    assert (route.clear_cache, route.prefetch, route.timeout_s, route.reducer) == (False, False, None, None)


def test_routes_pickle() -> None:
    for route in registered_methods(Worker).values():
        assert pickle.loads(pickle.dumps(route)) == route


def test_a_subclass_inherits_overrides_and_takes_back() -> None:
    class Child(Worker):
        def initialize(self, config: dict[str, int]) -> None:
            """Keeps the route of the method that it overrides."""

        @register(Dispatch.ONE_TO_ALL)
        def seed(self, seeds: int) -> None: ...

        train_step = None  # type: ignore[assignment]  # taken back on purpose

        @register(Dispatch.ONE_TO_ALL)
        def extra(self) -> None: ...

    found = registered_methods(Child)
    assert list(found) == ["initialize", "seed", "extra"]
    assert found["initialize"] == registered_methods(Worker)["initialize"]
    assert found["seed"].dispatch_mode is Dispatch.ONE_TO_ALL


def test_listing_methods_runs_no_property() -> None:
    class Fragile:
        @property
        def trap(self) -> int:
            raise AssertionError("a property was read")

        @register()
        def work(self) -> None: ...

    assert list(registered_methods(Fragile)) == ["work"]


@pytest.mark.parametrize("wrap", [staticmethod, classmethod])
def test_static_and_class_methods_are_refused_when_they_are_listed(wrap: Any) -> None:
    class Odd:
        work = wrap(register()(lambda self: None))

    with pytest.raises(RegisterError, match=f"Odd.work is a {wrap.__name__}, and only methods of a worker"):
        registered_methods(Odd)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dispatch_mode": plain}, "dispatch_mode is a Dispatch, not <function plain"),
        ({"dispatch_mode": "ALL"}, "no mode is named 'ALL'"),
        ({"execute_mode": "ALL"}, "execute_mode is Execute.ALL or Execute.RANK_ZERO, not 'ALL'"),
        ({"timeout_s": 0}, "timeout_s is a positive number of seconds or None, not 0"),
        ({"reducer": "median"}, "reducer is a function or one of sum, mean, min, max, first, not 'median'"),
        ({"pad": True}, "ALL_TO_ALL has no pad="),
    ],
)
def test_register_refuses_what_cannot_work(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RegisterError) as caught:
        register(**options)
    assert sentence in str(caught.value)


def test_register_without_parentheses_is_refused() -> None:
    with pytest.raises(RegisterError, match=r"write @register\(Dispatch.DP_MP_COMPUTE\)"):
        register(plain)  # type: ignore[arg-type]  # on purpose


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(
        RegisterError, match="only functions are registered, not <class 'int'>; put @register below"
    ):
        register()(int)


def test_a_parameter_that_the_cluster_takes_for_itself_is_refused() -> None:
    for method in (lambda self, blocking: None, lambda self, *, blocking: None):
        with pytest.raises(
            RegisterError, match="has the parameter blocking, which every call of a cluster takes"
        ):
            register()(method)

    def local(self: object) -> None:
        blocking = 1
        assert blocking

    register()(local)


def test_arguments_that_do_not_fit_the_signature_are_refused_with_it() -> None:
    check_arguments(plain, ([1],), {"scale": 3})
    with pytest.raises(ArgumentError) as caught:
        check_arguments(plain, (), {"rows": [1], "size": 3})
    assert str(caught.value) == (
        "plain(self: object, rows: list[int], *, scale: int = 2) -> list[int]: got an unexpected keyword "
        "argument 'size'; nothing was sent"
    )
    with pytest.raises(ArgumentError, match="missing a required argument: 'rows'"):
        check_arguments(plain, (), {})


def test_a_type_checker_sees_the_method_unchanged(tmp_path: Path) -> None:
    source = tmp_path / "worker.py"
    source.write_text(
        "from collections.abc import AsyncIterator\n"
        "from roll_dispatch import Dispatch, register, simulate, Topology\n"
        "class Worker:\n"
        "    @register(Dispatch.DP_MP_COMPUTE, clear_cache=True)\n"
        "    def step(self, rows: list[int], *, scale: float = 1.0) -> dict[str, float]: return {}\n"
        "    @register()\n"
        "    async def later(self, seeds: int) -> str: return ''\n"
        "    @register()\n"
        "    async def stream(self) -> AsyncIterator[int]:\n"
        "        yield 1\n"
        "reveal_type(Worker.step)\n"
        "reveal_type(Worker().later)\n"
        "reveal_type(Worker.stream)\n"
        "Worker().step([1], scale='x')\n"
        "reveal_type(simulate(Worker, Topology.data_parallel(2)).workers)\n"
    )
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(source)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert (
        'Revealed type is "def (self: worker.Worker, rows: list[int], *, scale: float =) -> dict[str, float]"'
        in found
        or "def (self: worker.Worker, rows: builtins.list[builtins.int], *, scale: builtins.float =) -> "
        "builtins.dict[builtins.str, builtins.float]"
        in found
    ), found
    assert "Coroutine[Any, Any, " in found, found
    assert "AsyncIterator[" in found, found
    assert 'incompatible type "str"; expected "float"' in found, found
    assert "list[worker.Worker]" in found, found
    assert "Found 1 error in 1 file" in found, found
