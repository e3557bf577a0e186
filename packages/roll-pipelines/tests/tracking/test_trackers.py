"""Where each step's metrics go."""

import contextlib
import importlib
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from roll_pipelines.config import BaseConfig
from roll_pipelines.tracking import JsonlTracker, SeveralTrackers, create_tracker, read_metrics
from roll_pipelines.tracking.console import ConsoleTracker
from roll_pipelines.tracking.several import as_number


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_jsonl_has_one_object_a_line_and_null_for_what_json_lacks(tmp_path: Path) -> None:
    tracker = JsonlTracker(tmp_path / "m.jsonl")
    tracker.log({"loss": 0.5, "kl": math.nan}, step=0)
    tracker.log({"loss": 0.25}, step=1)
    tracker.close()

    lines = (tmp_path / "m.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"step": 0, "loss": 0.5, "kl": None},
        {"step": 1, "loss": 0.25},
    ]


def test_a_line_is_on_disk_when_log_returns(tmp_path: Path) -> None:
    with contextlib.closing(JsonlTracker(tmp_path / "m.jsonl")) as tracker:
        tracker.log({"loss": 0.5}, step=0)

        assert read_metrics(tmp_path / "m.jsonl") == [{"step": 0, "loss": 0.5}]


def test_a_resumed_run_drops_the_lines_that_it_will_log_anew(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 0}\n{"step": 1}\n{"step": 2}\n{"ste')

    with contextlib.closing(JsonlTracker(path, after_step=1)) as tracker:
        tracker.log({"loss": 1.0}, step=2)

    assert read_metrics(path) == [{"step": 0}, {"step": 1}, {"step": 2, "loss": 1.0}]


@pytest.mark.parametrize(
    "value", [1.5, np.float32(1.5), np.array(1.5), torch.tensor(1.5), torch.tensor([1.5])]
)
def test_every_kind_of_number_becomes_a_plain_one(value: object) -> None:
    assert as_number("loss", value) == 1.5
    assert type(as_number("loss", value)) is float


@pytest.mark.parametrize("value", ["1", [1.0], None, torch.tensor([1.0, 2.0]), np.array([1.0, 2.0])])
def test_a_metric_that_is_no_number_is_refused_by_name(value: object) -> None:
    with pytest.raises(TypeError, match="'loss' must be a number"):
        as_number("loss", value)


def test_a_step_is_logged_once(tmp_path: Path) -> None:
    with contextlib.closing(SeveralTrackers([JsonlTracker(tmp_path / "m.jsonl")])) as tracker:
        tracker.log({"loss": 1.0}, step=3)

        with pytest.raises(ValueError, match="each step is logged once"):
            tracker.log({"loss": 2.0}, step=3)


def test_the_configuration_names_several_trackers_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = BaseConfig(output_dir=str(tmp_path), max_steps=2, track_with=["jsonl", "tensorboard", "console"])
    tracker = create_tracker(config)
    tracker.log({"actor/loss": 0.5}, step=0)
    tracker.log_text("answer", "42", step=0)
    tracker.close()
    tracker.close()

    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 0, "actor/loss": 0.5}]
    assert scalars(tmp_path / "tensorboard") == {"actor/loss": [(0, 0.5)]}
    assert "step 0 [1/2]  actor/loss=0.5" in capsys.readouterr().err


def scalars(log_dir: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")

    events = accumulator.EventAccumulator(str(log_dir))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_an_unknown_tracker_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tensorboard"):
        create_tracker(BaseConfig(output_dir=str(tmp_path), track_with="tensorbord"))


def test_the_console_writes_plain_lines_with_the_time_left() -> None:
    out, now = io.StringIO(), iter([0.0, 10.0, 12.0])
    tracker = ConsoleTracker(out, max_steps=4, clock=lambda: next(now))
    tracker.log({"reward_mean": 0.25, "time/x": 9.0, "tokens_per_second": 12345.6}, step=0)
    tracker.log({"reward_mean": 0.5}, step=1)
    tracker.close()

    assert out.getvalue().splitlines() == [
        "step 0 [1/4]  reward_mean=0.25  tokens_per_second=12,346",
        "step 1 [2/4, 4s left]  reward_mean=0.5",
    ]


def test_the_console_shows_the_first_metrics_when_none_is_a_usual_one() -> None:
    out = io.StringIO()
    tracker = ConsoleTracker(out)
    tracker.log({"time/x": 9.0, "mine": 1}, step=0)
    tracker.close()

    assert out.getvalue() == "step 0  mine=1\n"


def test_the_console_shows_the_metrics_that_were_asked_for() -> None:
    out = io.StringIO()
    tracker = ConsoleTracker(out, keys=("b", "missing"))
    tracker.log({"a": 1, "b": 2}, step=0)
    tracker.close()

    assert out.getvalue() == "step 0  b=2\n"


def test_the_console_draws_a_live_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    monkeypatch.setenv("LINES", "12")
    tracker = ConsoleTracker(out, name="my run", max_steps=2)
    others = {f"other/{number:02d}": 1.0 for number in range(30)}
    tracker.log({"loss": 0.5, "time/busy_share/actor": 0.53, **others}, step=0)
    tracker.close()

    assert "my run: step 0 [1/2]" in out.getvalue()
    assert "actor works" in out.getvalue()
    assert "53 % of the step" in out.getvalue()
    assert "other/03" in out.getvalue()
    assert "other/04" not in out.getvalue()  # what the terminal has no room for
    assert "\x1b[" in out.getvalue()
