"""docs/configuration.md lists every field of the shared configuration, as the classes describe it."""

import dataclasses
import json
from pathlib import Path
from typing import get_type_hints

import pytest

from roll_pipelines.config import (
    BaseConfig,
    CheckpointConfig,
    DataArguments,
    GeneratingArguments,
    ModelArguments,
    StrategyArguments,
    TelemetryConfig,
    TrainingArguments,
    TransferConfig,
    WorkerConfig,
)
from roll_pipelines.config.container import to_container
from roll_pipelines.config.documented import field_texts
from roll_pipelines.config.types import choices_of

PAGE = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"
SECTIONS = {
    "Top level": BaseConfig,
    "`checkpoint_config`": CheckpointConfig,
    "`telemetry`": TelemetryConfig,
    "`transfer_backend`": TransferConfig,
    "A role": WorkerConfig,
    "`strategy_args` of a role": StrategyArguments,
    "`model_args` of a role": ModelArguments,
    "`training_args` of a role": TrainingArguments,
    "`generating_args` of a role": GeneratingArguments,
    "`data_args` of a role": DataArguments,
}


def table(title: str, cls: type) -> str:
    """Returns the section of one class: a line for each field with its default and its text."""
    hints, texts = get_type_hints(cls), field_texts(cls)
    lines = [f"### {title}", "", "| field | default | meaning |", "|---|---|---|"]
    for entry in dataclasses.fields(cls):
        sections = [choice for choice in choices_of(hints[entry.name]) if dataclasses.is_dataclass(choice)]
        factory = entry.default_factory
        value = entry.default if factory is dataclasses.MISSING else factory()
        shown = "its own section" if sections else f"`{json.dumps(to_container(value))}`"
        text = texts.get(entry.name, "")
        lines.append(f"| `{entry.name}` | {shown} | {text} |")
    return "\n".join(lines)


@pytest.mark.parametrize("title", SECTIONS)
def test_every_field_stands_on_the_page_with_its_default_and_its_text(title: str) -> None:
    wanted = table(title, SECTIONS[title])

    assert wanted in PAGE.read_text(encoding="utf-8"), f"write this into {PAGE}:\n{wanted}"
