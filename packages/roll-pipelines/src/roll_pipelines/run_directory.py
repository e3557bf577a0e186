"""The run directory: what one run leaves behind, and where."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from roll_pipelines.config.base_config import BaseConfig
from roll_pipelines.config.container import to_container

CONFIG_FILE, METRICS_FILE, SUMMARY_FILE = "config.yaml", "metrics.jsonl", "summary.json"
SAMPLES_FILE, TIMELINE_FILE, REPORT_FILE = "samples.json", "timeline.jsonl", "report.html"


class RunDirectory:
    """The files of one run, under `output_dir`."""

    def __init__(self, root: Path) -> None:
        """Takes the directory; nothing is created before `open`."""
        self.root = root
        self.launcher: dict[str, object] = {}
        """What stands above the configuration in its file: the pipeline's and the configuration's class."""

    @property
    def checkpoints(self) -> Path:
        """The directory of the checkpoints."""
        return self.root / "checkpoints"

    @property
    def metrics(self) -> Path:
        """The metrics, one JSON object a line."""
        return self.root / METRICS_FILE

    @property
    def report(self) -> Path:
        """The report."""
        return self.root / REPORT_FILE

    def open(self, config: BaseConfig, *, resumed: bool) -> Path | None:
        """Creates the directory and writes the resolved configuration.

        A run that starts anew never mixes with an earlier one: what stands here is first moved to
        `<output_dir>.1`, or the next free number.

        Args:
            config: the run's configuration.
            resumed: go on with the run that stands here.

        Returns:
            Where an earlier run was moved, or None.
        """
        moved = None if resumed else self._move_aside()
        self.root.mkdir(parents=True, exist_ok=True)
        values = {**self.launcher, **dict(_items(to_container(config)))}
        text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
        (self.root / CONFIG_FILE).write_text(text, encoding="utf-8")
        return moved

    def _move_aside(self) -> Path | None:
        if not (self.root / CONFIG_FILE).exists():
            return None
        number = 1
        while (target := self.root.with_name(f"{self.root.name}.{number}")).exists():
            number += 1
        self.root.rename(target)
        return target

    def write_summary(self, summary: Mapping[str, object]) -> None:
        """Writes the few numbers that say how the run went."""
        text = json.dumps(dict(summary), indent=2) + "\n"
        (self.root / SUMMARY_FILE).write_text(text, encoding="utf-8")

    def add_samples(self, when: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Keeps sample answers for the report.

        Args:
            when: what they show, such as `before` or `after`.
            rows: each with `prompt`, `response` and what else helps, such as `expected` and `score`.
        """
        path = self.root / SAMPLES_FILE
        samples = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        samples[when] = [dict(row) for row in rows]
        path.write_text(json.dumps(samples, indent=1, ensure_ascii=False), encoding="utf-8")


def _items(values: object) -> Mapping[str, object]:
    assert isinstance(values, dict), "a configuration is a mapping"
    return values
