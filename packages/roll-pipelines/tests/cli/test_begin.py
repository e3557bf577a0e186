"""The commands with which a newcomer begins."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from roll_pipelines.cli.app import app

PIPELINES = ["sft", "dpo", "distill", "rlvr"]


def roll(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_init_writes_a_yaml_that_asks_only_for_what_must_be_given(here: Path, pipeline: str) -> None:
    assert roll("init", pipeline, "--to", "mine.yaml").exit_code == 0

    values = yaml.safe_load((here / "mine.yaml").read_text())
    assert values.pop("pipeline_cls") == pipeline
    assert set(values.values()) <= {"???"}
    refused = roll("check", "mine.yaml")
    assert refused.exit_code == 2
    for name in values:
        assert f"\n{name}  (" in refused.stderr


def test_every_line_of_a_template_is_valid_when_it_is_uncommented(here: Path) -> None:
    roll("init", "rlvr", "--to", "mine.yaml")
    lines = (here / "mine.yaml").read_text().splitlines()
    keys = [line.removeprefix("# ") for line in lines if line.startswith("# ") and ":" in line.split("#")[1]]
    options = [line for line in keys if line.startswith(" ") or line.split(":")[0].isidentifier()]
    (here / "all.yaml").write_text("pipeline_cls: rlvr\n" + "\n".join(options) + "\n")

    refused = roll("check", "all.yaml", "runtime=local").stderr
    assert "unknown key" not in refused
    assert "rule:  must be a" not in refused


def test_init_leaves_an_existing_file_alone(here: Path) -> None:
    result = roll("init", "sft", "--to", "sums.yaml")

    assert result.exit_code == 2
    assert "exists already" in result.stderr
    assert "users_sums" in (here / "sums.yaml").read_text()


@pytest.mark.parametrize("pipeline", [*PIPELINES, "users_sums.Sums"])
def test_schema_describes_every_field_of_a_pipeline(here: Path, pipeline: str) -> None:
    schema = json.loads(roll("schema", pipeline).stdout)

    assert schema["additionalProperties"] is False
    assert {"pipeline_cls", "max_steps", "seed", "output_dir"} <= set(schema["properties"])
    assert schema["properties"]["max_steps"]["default"] == 500
    worker = schema["$defs"]["WorkerConfig"]["properties"]
    assert worker["device_mapping"]["description"]
    assert worker["strategy_args"]["$ref"] == "#/$defs/StrategyArguments"


@pytest.mark.parametrize("command", ["init", "schema"])
def test_an_unknown_pipeline_is_refused_with_the_nearest_name(here: Path, command: str) -> None:
    result = roll(command, "rlrv")

    assert result.exit_code == 2
    assert "rlvr" in result.stderr


def test_doctor_names_engines_devices_and_what_is_missing() -> None:
    result = roll("doctor")

    assert result.exit_code == 0
    assert "mock_train          works: scores, trains, generates" in result.stdout
    assert "roll-pipelines" in result.stdout
    assert "platform cpu" in result.stdout
    assert "opentelemetry" in result.stdout
