"""The report of one run: a single HTML file that needs nothing else."""

import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from roll_pipelines.report.chart import line_chart, number
from roll_pipelines.report.samples import samples_section
from roll_pipelines.report.series import WHOLE_STEP, Series, main_series, read_series, timings
from roll_pipelines.report.timeline import timeline_section
from roll_pipelines.tracking import read_metrics


class NoRunError(ValueError):
    """A directory holds no run to report on."""


def write_report(run_dir: Path) -> Path:
    """Writes `report.html` from the files of a run directory, and returns its path.

    Args:
        run_dir: the directory, finished or not.

    Raises:
        NoRunError: there are no metrics and no configuration in it.
    """
    rows = read_metrics(run_dir / "metrics.jsonl")
    config = _text(run_dir / "config.yaml")
    if not rows and not config:
        raise NoRunError(f"{run_dir} is no run directory: it has neither metrics.jsonl nor config.yaml")
    summary = json.loads(_text(run_dir / "summary.json") or "{}")
    samples = json.loads(_text(run_dir / "samples.json") or "{}")
    timeline = [
        json.loads(line) for line in _text(run_dir / "timeline.jsonl").splitlines() if line.endswith("}")
    ]
    series = read_series(rows)
    name = str(summary.get("exp_name") or run_dir.name)
    body = "".join(
        [
            _header(name, summary, rows),
            _curves(series),
            samples_section(samples),
            _timing(series),
            timeline_section(timeline),
            _everything(series),
            _config(config),
        ]
    )
    page = _PAGE.format(
        title=html.escape(name), style=_asset("style.css"), script=_asset("hover.js"), body=body
    )
    target = run_dir / "report.html"
    target.write_text(page, encoding="utf-8")
    return target


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>{body}</main>
<script>{script}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return (files("roll_pipelines.report") / name).read_text(encoding="utf-8")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _header(name: str, summary: Mapping[str, object], rows: Sequence[Mapping[str, float | None]]) -> str:
    cards = [_change(label, before, after) for label, before, after in changes(summary)]
    steps, seconds = summary.get("steps", len(rows)), summary.get("seconds")
    cards.append(_card("Steps", number(_float(steps))))
    if seconds is not None:
        cards.append(_card("Time", duration(_float(seconds))))
    for key, value in summary.items():
        if (
            key not in ("exp_name", "steps", "seconds", "status")
            and "before" not in key
            and "after" not in key
        ):
            shown = number(_float(value)) if isinstance(value, int | float) else str(value)
            cards.append(_card(key.replace("_", " ").capitalize(), shown))
    head = f"<h1>{html.escape(name)}</h1>{_state(summary)}"
    return f"<header>{head}<div class=cards>{''.join(cards)}</div></header>"


def _state(summary: Mapping[str, object]) -> str:
    status = summary.get("status", "done")
    if not summary:
        return '<p class="note">This run has not ended: there is no summary.json yet.</p>'
    if status == "done":
        return ""
    words = {"failed": "failed; error.txt has the traceback", "interrupted": "was stopped by Ctrl-C"}
    ended = words.get(str(status), f"was {status}")
    return f'<p class="note bad">This run {html.escape(ended)}. What it measured until then is below.</p>'


def changes(summary: Mapping[str, object]) -> list[tuple[str, float, float]]:
    """Returns what was measured before and after, as label, value before and value after.

    Args:
        summary: the contents of `summary.json`; a pair is two keys that differ in `before` and `after`.

    Example:
        >>> changes({"eval_accuracy_before_rl": 0.25, "eval_accuracy_after_rl": 0.75})
        [('eval accuracy', 0.25, 0.75)]
    """
    found = []
    for key, before in summary.items():
        after = summary.get(key.replace("before", "after")) if "before" in key else None
        if isinstance(before, int | float) and isinstance(after, int | float):
            found.append((key.partition("_before")[0].replace("_", " "), float(before), float(after)))
    return found


def _change(label: str, before: float, after: float) -> str:
    percent = "accuracy" in label or "rate" in label
    show = (lambda v: f"{100 * v:.1f} %") if percent else number
    gain = f"{100 * (after - before):+.1f} points" if percent else f"{after - before:+.4g}"
    direction = "up" if after >= before else "down"
    label = f"Held-out {label.removeprefix('eval ')}" if label.startswith("eval ") else label.capitalize()
    return (
        f'<div class="card wide"><span class="label">{html.escape(label)}</span>'
        f'<span class="value"><span class="from">{show(before)}</span>'
        f'<span class="arrow">→</span>{show(after)}</span>'
        f'<span class="gain {direction}">{gain}</span></div>'
    )


def _card(label: str, value: str) -> str:
    return (
        f'<div class="card"><span class="label">{html.escape(label)}</span>'
        f'<span class="value">{html.escape(value)}</span></div>'
    )


def duration(seconds: float) -> str:
    """Returns seconds as hours, minutes and seconds.

    Example:
        >>> duration(3.25), duration(75), duration(3700)
        ('3.2 s', '1 min 15 s', '1 h 01 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _figure(series: Series, *, title: str, steps: tuple[float, float]) -> str:
    last = number(series.values[-1])
    return (
        f"<figure><figcaption><b>{html.escape(title)}</b><code>{html.escape(series.name)}</code>"
        f'<span class="last">{last}</span></figcaption>{line_chart(series, steps=steps)}</figure>'
    )


def _span(series: Sequence[Series]) -> tuple[float, float]:
    steps = [step for entry in series for step in (entry.steps[0], entry.steps[-1])]
    return min(steps), max(steps)


def _curves(series: Sequence[Series]) -> str:
    figures = [_figure(entry, title=entry.title, steps=_span(series)) for entry in main_series(series)]
    return f"<section><h2>Curves</h2><div class=grid>{''.join(figures)}</div></section>" if figures else ""


def _everything(series: Sequence[Series]) -> str:
    shown = {entry.name for entry in main_series(series)}
    rest = sorted((entry for entry in series if entry.name not in shown), key=lambda entry: entry.name)
    if not rest:
        return ""
    figures = "".join(
        _figure(entry, title=entry.name.rpartition("/")[2], steps=_span(series)) for entry in rest
    )
    title = f"All other metrics <small>{len(rest)}</small>"
    return f"<section><details><summary>{title}</summary><div class=grid>{figures}</div></details></section>"


def _timing(series: Sequence[Series]) -> str:
    means = timings(series)
    if not means:
        return ""
    parts = {name: mean for name, mean in means.items() if name not in WHOLE_STEP}
    whole = next((means[name] for name in WHOLE_STEP if name in means), sum(parts.values()))
    rows = []
    for name, mean in parts.items():
        share = min(1.0, mean / whole) if whole else 0.0
        rows.append(
            f"<tr><td>{html.escape(name.replace('_', ' '))}</td><td class=num>{mean:.3f} s</td>"
            f"<td class=num>{100 * share:.0f} %</td>"
            f'<td class=bar><span style="width:{100 * share:.1f}%"></span></td></tr>'
        )
    rest = whole - sum(parts.values())
    if rest > 0.005 * whole:
        share = rest / whole
        rows.append(
            f"<tr><td>everything else</td><td class=num>{rest:.3f} s</td>"
            f"<td class=num>{100 * share:.0f} %</td>"
            f'<td class=bar><span style="width:{100 * share:.1f}%"></span></td></tr>'
        )
    head = "<tr><th>Part of a step</th><th class=num>Mean</th><th class=num>Share</th><th></th></tr>"
    foot = f"<tr class=total><td>whole step</td><td class=num>{whole:.3f} s</td><td></td><td></td></tr>"
    table = f"<table class=timing><thead>{head}</thead><tbody>{''.join(rows)}{foot}</tbody></table>"
    return f"<section><h2>Where the time goes</h2>{table}</section>"


def _config(text: str) -> str:
    if not text:
        return ""
    code = f"<pre><code>{html.escape(text)}</code></pre>"
    return f"<section><details><summary>Configuration</summary>{code}</details></section>"
