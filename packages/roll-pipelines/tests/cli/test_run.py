"""Runs from a YAML to a run directory, with their failures."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from roll_pipelines.checkpoints import CheckpointStore
from roll_pipelines.cli.exit_codes import ExitCode
from roll_pipelines.cli.run import report_on, resume_run, run_pipeline
from roll_pipelines.tracking import read_metrics

TRACKERS = "track_with=[jsonl,tensorboard,console]"


@pytest.fixture(autouse=True)
def quiet_logging() -> Iterator[None]:
    """Takes away the handlers that a command has set up."""
    import logging

    before = list(logging.getLogger().handlers)
    yield
    logging.getLogger().handlers[:] = before


def totals(run_dir: Path) -> list[float | None]:
    return [row["total"] for row in read_metrics(run_dir / "metrics.jsonl")]


def test_a_run_leaves_everything_in_its_directory(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_pipeline(Path("sums.yaml"), ["exp_name=mine", TRACKERS]) is ExitCode.DONE

    out = here / "out"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["exp_name"] == "mine"
    assert (summary["steps"], summary["status"], summary["total_before"]) == (6, "done", 0.0)
    assert summary["seconds"] > 0
    assert [row["step"] for row in read_metrics(out / "metrics.jsonl")] == [0, 1, 2, 3, 4, 5]
    assert all(row["time/add"] for row in read_metrics(out / "metrics.jsonl"))
    assert CheckpointStore(out / "checkpoints").steps() == [1, 3, 5]
    assert list((out / "tensorboard").iterdir())
    assert "exp_name: mine" in (out / "config.yaml").read_text()
    assert (out / "report.html").read_text().startswith("<!DOCTYPE html>")
    shown = capsys.readouterr()
    assert shown.err.count("run directory out") == 2
    assert "step 5 [6/6]" in shown.err


def test_the_same_seed_gives_the_same_metrics_and_another_one_does_not(here: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run_pipeline(Path("sums.yaml"), [f"output_dir={name}", f"seed={seed}"])

    assert totals(here / "a") == totals(here / "b")
    assert totals(here / "a") != totals(here / "c")


def test_a_failed_run_says_why_and_how_to_go_on_and_resumes_exactly(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_pipeline(Path("sums.yaml"), ["output_dir=straight"]) is ExitCode.DONE
    capsys.readouterr()

    assert run_pipeline(Path("sums.yaml"), ["output_dir=broken", "fail_at=5"]) is ExitCode.FAILED
    shown = capsys.readouterr().err
    assert "the adder broke" in shown
    assert "roll resume broken" in shown
    assert "the adder broke" in (here / "broken" / "error.txt").read_text()
    assert json.loads((here / "broken" / "summary.json").read_text())["status"] == "failed"

    assert (
        run_pipeline(Path("sums.yaml"), ["output_dir=broken", "resume_from_checkpoint=true"]) is ExitCode.DONE
    )
    assert totals(here / "broken") == totals(here / "straight")
    last = [
        torch.load(here / name / "checkpoints/checkpoint-5/adder/1.pt") for name in ("broken", "straight")
    ]
    assert last[0] == last[1]


def test_resume_goes_on_from_anywhere_with_the_configuration_of_the_run(
    here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run_pipeline(Path("sums.yaml"), ["output_dir=straight", "seed=5", "max_steps=8"])
    run_pipeline(Path("sums.yaml"), ["output_dir=stopped", "seed=5"])
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))

    assert resume_run(here / "stopped", ["max_steps=8"]) is ExitCode.DONE
    assert totals(here / "stopped") == totals(here / "straight")


def test_resume_refuses_a_directory_without_a_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert resume_run(here, []) is ExitCode.REFUSED

    assert "no run directory" in capsys.readouterr().err


def test_a_new_run_moves_an_earlier_one_aside(here: Path) -> None:
    run_pipeline(Path("sums.yaml"), ["exp_name=first"])
    run_pipeline(Path("sums.yaml"), ["exp_name=second"])

    assert "exp_name: first" in (here / "out.1" / "config.yaml").read_text()
    assert "exp_name: second" in (here / "out" / "config.yaml").read_text()


def test_nothing_to_resume_from_is_said_and_nothing_is_written(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_pipeline(Path("sums.yaml"), ["resume_from_checkpoint=true"]) is ExitCode.REFUSED

    assert "no whole checkpoint" in capsys.readouterr().err
    assert not (here / "out").exists()


def test_a_constructor_that_fails_half_way_is_closed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_pipeline(Path("sums.yaml"), ["pipeline_cls=users_sums.Unfinished"]) is ExitCode.FAILED

    assert "half-way" in capsys.readouterr().err


def test_a_report_can_be_written_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_pipeline(Path("sums.yaml"), [])
    (here / "out" / "report.html").unlink()

    assert report_on(Path("out")) is ExitCode.DONE
    assert (here / "out" / "report.html").exists()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED)]
)
def test_a_signal_ends_the_run_with_one_message_and_a_whole_checkpoint(
    here: Path, number: signal.Signals, code: ExitCode
) -> None:
    script = "import sys; from roll_pipelines.cli import main; sys.argv[0] = 'roll'; main()"
    command = [sys.executable, "-c", script, "run", "sums.yaml", "wait_at=3", "adder.world_size=1"]
    environment = {**os.environ, "PYTHONPATH": ""}
    with subprocess.Popen(
        command, text=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() != "waiting":
            assert process.poll() is None
        process.send_signal(number)
        _, shown = process.communicate(timeout=60)

    assert process.returncode == code
    assert "Traceback" not in shown
    assert "roll resume out" in shown
    assert (
        CheckpointStore(here / "out" / "checkpoints").find(True)
        == Path("out/checkpoints/checkpoint-1").resolve()
    )
