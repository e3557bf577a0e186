"""`roll replay`: one rank of a recorded call again, from the command line."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from roll_executor import Cluster, WorkerConfig, WorkerRaisedError
from roll_executor.testing import ContractWorker
from roll_pipelines.cli.app import app
from roll_resources import ResourceManager


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a call that ended well and one that failed on rank 2."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr("sys.path", [*sys.path])
    folder = tmp_path / "records"
    config = WorkerConfig(name="contract", world_size=4)
    with (
        ResourceManager(runtime="local") as manager,
        Cluster("contract", ContractWorker, manager, config) as cluster,
        cluster.record(folder),
    ):
        cluster.double([1, 2, 3, 4])
        with pytest.raises(WorkerRaisedError):
            cluster.fail(2)
    return folder


def roll(*arguments: object, typed: str | None = None) -> Result:
    return CliRunner().invoke(app, ["replay", *map(str, arguments)], input=typed)


def test_one_rank_runs_again_and_its_result_is_printed(records: Path) -> None:
    result = roll(records / "0001-double", "--rank", 3)

    assert (result.exit_code, result.stdout) == (0, "[8]\n")


def test_a_rank_that_raised_raises_again_with_its_traceback(records: Path) -> None:
    result = roll(records / "0002-fail", "--rank=2")

    assert result.exit_code == 1
    assert "rank 2 was told to fail" in result.stderr
    assert "in fail" in result.stderr


def test_a_debugger_can_be_asked_for_and_left(records: Path) -> None:
    result = roll(records / "0001-double", "--rank=3", "--pdb", typed="p rows\nquit\n")

    assert result.exit_code == 0
    assert "return [2 * row for row in rows]" in result.stdout
    assert "[4]" in result.stdout
    assert "left the debugger" in result.stderr


def test_a_rank_or_record_that_is_not_there_is_refused(records: Path) -> None:
    assert "no rank 9; it has [0, 1, 2, 3]" in roll(records / "0001-double", "--rank=9").stderr
    refused = roll(records, "--rank=0")
    assert refused.exit_code == 2
    assert "call.json" in refused.stderr
