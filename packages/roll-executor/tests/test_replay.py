"""Calls are recorded, and one rank of them runs again alone."""

import asyncio
import io
import json
import os
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from pdb import Pdb
from typing import Any

import pytest

from roll_dispatch import Dispatch, register
from roll_executor import Cluster, RecordError, Worker, WorkerConfig, WorkerRaisedError, replay
from roll_resources import ResourceManager


class Dice(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config: int) -> None:
        super().initialize(pipeline_config)

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def roll(self, rows: list[int]) -> list[tuple[int, int, float]]:
        return [(self.rank, row * self.pipeline_config, random.random()) for row in rows]

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def throws(self, rows: list[int]) -> Iterator[int]:
        for row in rows:
            yield row * self.pipeline_config

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def fail(self, text: str) -> None:
        raise ValueError(text)


class Waiter(Worker):
    def __init__(self, worker_config: Any) -> None:
        super().__init__(worker_config)
        self.seen: list[int] = []

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    async def initialize(self, pipeline_config: int) -> None:  # type: ignore[override]  # as a user may
        super().initialize(pipeline_config)
        self.lock = asyncio.Lock()

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    async def scale(self, rows: list[int]) -> list[int]:
        async with self.lock:
            return [row * self.pipeline_config for row in rows]

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    async def count(self, rows: list[int]) -> AsyncIterator[int]:
        for row in rows:
            await asyncio.sleep(0)
            yield row


@pytest.fixture
def dice(tmp_path: Path) -> Any:
    with ResourceManager(runtime="local") as manager:
        config = WorkerConfig(name="dice", world_size=2)
        with Cluster("dice", Dice, manager, config) as cluster:
            cluster.initialize(100)
            yield cluster


def test_one_rank_runs_again_with_its_arguments_and_its_luck(
    dice: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_EXAMPLE", "7")
    monkeypatch.setenv("ROLL_API_KEY", "secret")
    random.seed(3)
    with dice.record(tmp_path):
        first = dice.roll([1, 2, 3])
    random.seed(4)
    assert dice.roll([1, 2, 3]) != first  # not recorded
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0001-roll"]
    monkeypatch.delenv("OMP_EXAMPLE")
    again = replay(tmp_path / "0001-roll", 1)
    assert [(rank, row) for rank, row, _ in again] == [(1, 300)]
    random.seed(3)
    assert replay(tmp_path / "0001-roll", 0)[0][2] == random.Random(3).random()
    assert os.environ["OMP_EXAMPLE"] == "7"
    assert b"secret" not in (tmp_path / "0001-roll" / "rank-1.pkl").read_bytes()
    about = json.loads((tmp_path / "0001-roll" / "call.json").read_text())
    assert (about["cluster"], about["method"], about["ranks"]) == ("dice", "roll", [0, 1])


def test_a_call_that_fails_has_been_recorded_before(dice: Cluster, tmp_path: Path) -> None:
    with dice.record(tmp_path), pytest.raises(WorkerRaisedError):
        dice.fail("the reason")
    with pytest.raises(WorkerRaisedError, match="the reason") as caught:
        replay(tmp_path / "0001-fail", 1)
    assert isinstance(caught.value.original, ValueError)


def test_coroutines_and_streams_are_recorded_and_run_again(dice: Cluster, tmp_path: Path) -> None:
    with ResourceManager(runtime="local") as manager:
        config = WorkerConfig(name="waiter", world_size=2)
        with Cluster("waiter", Waiter, manager, config) as waiter:
            waiter.initialize(10)
            with waiter.record(tmp_path / "async"):
                assert waiter.scale([1, 2, 3]) == [10, 20, 30]
                assert sorted(waiter.count([1, 2, 3])) == [1, 2, 3]
    assert replay(tmp_path / "async" / "0001-scale", 1) == [30]
    assert replay(tmp_path / "async" / "0002-count", 0) == [1, 2]
    with dice.record(tmp_path / "plain"):
        assert sorted(dice.throws([1, 2, 3])) == [100, 200, 300]
    assert replay(tmp_path / "plain" / "0001-throws", 0) == [100, 200]


def test_a_debugger_stops_at_the_first_line_of_the_method(dice: Cluster, tmp_path: Path) -> None:
    with dice.record(tmp_path):
        dice.roll([1, 2, 3])
    shown = io.StringIO()
    debugger = Pdb(stdin=io.StringIO("p rows\nc\n"), stdout=shown, nosigint=True, readrc=False)
    assert replay(tmp_path / "0001-roll", 1, debugger=debugger)[0][1] == 300
    assert "return [(self.rank, row" in shown.getvalue()
    assert "[3]" in shown.getvalue()


def test_what_is_no_record_is_refused_by_name(dice: Cluster, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"call\.json"):
        replay(tmp_path, 0)
    with dice.record(tmp_path):
        dice.roll([1, 2])
    with pytest.raises(RecordError, match=r"no rank 5; it has \[0, 1\]"):
        replay(tmp_path / "0001-roll", 5)
    with dice.record(tmp_path), pytest.raises(RecordError, match="pickle cannot take"):
        dice.fail(lambda: None)
