"""The report of a run."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from roll_pipelines.report import NoRunError, write_report
from roll_pipelines.report.chart import line_chart, nice_ticks, smoothed
from roll_pipelines.report.page import changes, duration
from roll_pipelines.report.series import Series, main_series, read_series, timings


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.charts = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.charts += tag == "svg" and ("class", "chart") in attrs
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def run_files(run_dir: Path) -> None:
    rows = [
        {"step": s, "rlvr/reward_mean": s / 9, "time/train": 1.0, "odd": None if s else 3.0}
        for s in range(10)
    ]
    (run_dir / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run_dir / "config.yaml").write_text("exp_name: <mine>\n")
    summary = {"exp_name": "<mine>", "steps": 10, "seconds": 75.0}
    summary |= {"eval_accuracy_before_rl": 0.25, "eval_accuracy_after_rl": 0.75}
    (run_dir / "summary.json").write_text(json.dumps(summary))
    samples = {
        "before": [{"prompt": "1+1=", "expected": "2", "response": "3", "score": 0.0}],
        "after": [{"prompt": "1+1=", "expected": "2", "response": "2", "score": 1.0}],
    }
    (run_dir / "samples.json").write_text(json.dumps(samples))


def test_a_report_is_one_file_that_needs_no_network_and_says_what_changed(tmp_path: Path) -> None:
    run_files(tmp_path)
    text = write_report(tmp_path).read_text()
    page = Page(text)

    assert page.open == []
    assert page.links == []
    assert re.findall(r"https?://|@import|url\(", text) == []
    assert page.charts == 3
    for words in (
        "25.0 %",
        "75.0 %",
        "+50.0 points",
        "1 min 15 s",
        "1+1=",
        "score 0",
        "score 1",
        "&lt;mine&gt;",
    ):
        assert words in text
    assert "<mine>" not in text


def test_a_run_that_has_not_ended_is_reported_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "loss": 1.0}\n{"st')

    assert "has not ended" in write_report(tmp_path).read_text()


def test_a_run_that_failed_is_reported_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "loss": 1.0}\n')
    (tmp_path / "summary.json").write_text('{"status": "failed", "steps": 1, "seconds": 1.0}')

    assert "This run failed" in write_report(tmp_path).read_text()


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoRunError, match="neither metrics"):
        write_report(tmp_path)


def test_main_curves_are_the_plainest_of_their_kind() -> None:
    names = [
        "a/reward_std",
        "a/reward_mean",
        "a/lr",
        "time/loss",
        "actor/loss",
        "val/loss_max",
        "still_accuracy",
    ]
    series = [Series(name, (0, 1), (0.5, 0.5 if name == "still_accuracy" else 1.0)) for name in names]

    assert [entry.name for entry in main_series(series)] == ["a/reward_mean", "actor/loss", "a/lr"]


def test_series_leave_out_steps_without_the_metric() -> None:
    rows: list[dict[str, float | None]] = [
        {"step": 0, "a": 1.0},
        {"step": 1, "a": None},
        {"step": 2, "a": 3.0},
    ]

    assert read_series(rows) == [Series("a", (0, 2), (1.0, 3.0))]


def test_timings_are_means_with_the_longest_first() -> None:
    series = [
        Series("time/a", (0, 1), (1.0, 3.0)),
        Series("time/b", (0, 1), (5.0, 5.0)),
        Series("c", (0,), (9.0,)),
    ]

    assert timings(series) == {"b": 5.0, "a": 2.0}


def test_pairs_of_before_and_after_are_found_by_their_names() -> None:
    summary = {"loss_before": 3.0, "loss_after": 1.0, "x_before": 1.0, "name": "n"}

    assert changes(summary) == [("loss", 3.0, 1.0)]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.0, 1.0, [0.0, 0.25, 0.5, 0.75, 1.0]),
        (3.0, 97.0, [0, 25, 50, 75, 100]),
        (2.0, 2.0, [1.8, 1.9, 2.0, 2.1, 2.2]),
    ],
)
def test_ticks_are_round_and_cover_the_values(low: float, high: float, ticks: list[float]) -> None:
    assert nice_ticks(low, high) == pytest.approx(ticks)


def test_smoothing_keeps_a_straight_line_and_lags_on_neither_side() -> None:
    line = [float(step) for step in range(60)]

    assert smoothed(line)[5:-5] == pytest.approx(line[5:-5])


@pytest.mark.parametrize("values", [(1.0,), (0.0, 0.0), (-1e9, 1e9), (1e-9, 2e-9), tuple(range(100))])
def test_every_series_can_be_drawn_inside_its_frame(values: tuple[float, ...]) -> None:
    drawing = line_chart(Series("a", tuple(range(len(values))), values))
    numbers = [float(y) for y in re.findall(r"[ML][\d.]+ (-?[\d.]+)", drawing)]

    assert all(0 <= y <= 210 for y in numbers)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.04, "0.0 s"), (59.9, "59.9 s"), (75, "1 min 15 s"), (7322, "2 h 02 min")]
)
def test_durations_read_like_speech(seconds: float, words: str) -> None:
    assert duration(seconds) == words
