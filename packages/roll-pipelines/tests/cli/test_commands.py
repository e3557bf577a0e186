"""The commands that start nothing."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from roll_pipelines import BasePipeline
from roll_pipelines.cli.app import app
from roll_pipelines.config import ConfigError
from roll_pipelines.config.load import check_engines, load_config


def roll(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_help_lists_every_command_and_the_exit_codes() -> None:
    text = roll("--help").stdout

    for command in ("run", "check", "plan", "config", "report"):
        assert f"  {command} " in text
    assert "130 stopped by Ctrl-C" in text


def test_check_says_what_would_run_and_where(here: Path) -> None:
    result = roll("check", "sums.yaml", "adder.device_mapping=[0,1]")

    assert result.exit_code == 0
    assert "sums.yaml: ok" in result.stdout
    assert "users_sums.Sums" in result.stdout
    assert "users_sums.Adder" in result.stdout
    assert "node0" in result.stdout
    assert not (here / "out").exists()


@pytest.mark.parametrize("command", ["run", "check", "plan", "config"])
def test_a_wrong_key_is_refused_with_code_2_before_anything_starts(here: Path, command: str) -> None:
    result = roll(command, "sums.yaml", "adder.wrld_size=3", "adder.device_mapping=[7,8]")

    assert result.exit_code == 2
    assert "2 problems" in result.stderr
    assert "world_size" in result.stderr
    assert "adder.device_mapping" in result.stderr
    assert not (here / "out").exists()


def test_a_worker_class_that_does_not_exist_is_refused(here: Path) -> None:
    result = roll("check", "sums.yaml", "adder.worker_cls=users_sums.Ader")

    assert result.exit_code == 2
    assert "adder.worker_cls" in result.stderr
    assert "Adder" in result.stderr


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this process one that is connected to no Ray, whatever other tests have started."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if "ray" in sys.modules:
        monkeypatch.setattr("ray.is_initialized", lambda: False)


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize(
    ("settings", "path"),
    [(["num_gpus_per_node=64"], "num_gpus_per_node"), (["num_nodes=2", "num_gpus_per_node=0"], "num_nodes")],
)
def test_a_run_that_asks_for_more_than_this_machine_has_is_refused_before_ray_starts(
    here: Path, settings: list[str], path: str
) -> None:
    refused = roll("run", "sums.yaml", "runtime=ray", *settings)

    assert refused.exit_code == 2
    assert f"\n{path}  (" in refused.stderr
    assert roll("check", "sums.yaml", "runtime=ray", *settings).exit_code == 0


@pytest.fixture
def needy(here: Path, apart: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """The setting that gives the adder an engine whose library is not installed."""
    (here / "needy-1.dist-info").mkdir()
    (here / "needy-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: needy\nVersion: 1\nRequires-Dist: no-such-library; extra == 'all'\n"
    )
    (here / "needy-1.dist-info" / "entry_points.txt").write_text(
        "[roll.strategies]\nneedy = users_sums:Adder [all]\n"
    )
    monkeypatch.syspath_prepend(here)
    return "adder.strategy_args.strategy_name=needy"


def test_a_run_whose_engine_lacks_its_library_is_refused_before_anything_starts(
    here: Path, needy: str
) -> None:
    for runtime in ("local", "ray"):
        refused = roll("run", "sums.yaml", needy, f"runtime={runtime}", "num_gpus_per_node=0")

        assert refused.exit_code == 2
        assert "adder.strategy_args.strategy_name  (command line)\n  value: 'needy'" in refused.stderr
        assert "needs the library no-such-library, which is not installed here" in refused.stderr
        assert "install 'no-such-library'" in refused.stderr
        assert "works here: fsdp2_infer, fsdp2_train, hf_infer" in refused.stderr
    assert not (here / "out").exists()


def test_check_accepts_what_another_machine_may_have_and_says_what_this_one_lacks(needy: str) -> None:
    accepted = roll("check", "sums.yaml", needy)

    assert accepted.exit_code == 0
    assert "warning: this environment lacks libraries" in accepted.stdout
    assert "needs the library no-such-library" in accepted.stdout
    assert "warning" not in roll("check", "sums.yaml").stdout


def test_a_pipeline_in_python_is_refused_alike_and_one_that_joins_a_ray_is_told(
    here: Path, needy: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = load_config("sums.yaml", [needy]).config
    with pytest.raises(ConfigError, match="needs the library no-such-library"):
        BasePipeline(config)
    assert not (here / "out").exists()

    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    config.runtime = "ray"
    BasePipeline(config).close()
    assert "nodes must have what this driver has not" in caplog.text
    assert "needs the library no-such-library" in caplog.text


def test_a_role_with_folders_of_its_own_is_told_only(needy: str, caplog: pytest.LogCaptureFixture) -> None:
    folders = "adder.system_envs={PYTHONPATH: /theirs}"
    check_engines(load_config("sums.yaml", [needy, folders, "runtime=ray", "num_gpus_per_node=0"]).config)
    assert "needs the library no-such-library" in caplog.text


def test_an_unknown_or_missing_tracker_is_refused(here: Path) -> None:
    assert "tensorboard" in roll("check", "sums.yaml", "track_with=tensorbord").stderr


def test_check_prints_who_produces_and_consumes_each_field(here: Path) -> None:
    text = roll("check", "sums.yaml", "pipeline_cls=users_sums.Declared", "--fields").stdout

    assert "column  as" in text
    assert "x       int64  load         add" in text


def test_a_field_that_nobody_produces_is_found_before_the_first_step(here: Path) -> None:
    refused = roll("check", "sums.yaml", "pipeline_cls=users_sums.Undeclared", "--fields")

    assert refused.exit_code == 2
    assert "add: x" in refused.stderr
    assert roll("run", "sums.yaml", "pipeline_cls=users_sums.Undeclared").exit_code != 0
    assert not (here / "out" / "metrics.jsonl").exists()


def test_a_role_without_a_worker_class_is_refused(here: Path) -> None:
    result = roll("check", "sums.yaml", "adder.worker_cls=null")

    assert result.exit_code == 2
    assert "adder.worker_cls" in result.stderr


def test_plan_pretends_nodes_and_devices(here: Path) -> None:
    result = roll(
        "plan",
        "sums.yaml",
        "adder.device_mapping=0-15",
        "adder.world_size=16",
        "--nodes=2",
        "--gpus-per-node=8",
        "--svg=plan.svg",
    )

    assert result.exit_code == 0
    assert "adder  15    node1  7           15" in result.stdout
    grid = "node1  0:A8  1:A9  2:A10  3:A11  4:A12  5:A13  6:A14  7:A15"
    assert result.stdout.splitlines()[-1] == grid
    assert "1: adder rank 9" in (here / "plan.svg").read_text()
    assert not (here / "out").exists()


def test_a_picture_that_cannot_be_written_is_told(here: Path) -> None:
    result = roll("plan", "sums.yaml", "--svg=nowhere/plan.svg")

    assert result.exit_code == 2
    assert "nowhere/plan.svg" in result.stderr


def test_config_says_where_each_value_comes_from(here: Path) -> None:
    lines = roll("config", "sums.yaml", "seed=7").stdout.splitlines()

    assert any(line.startswith("seed: 7 ") and line.endswith("# command line") for line in lines)
    assert any(line.startswith("  world_size: 2 ") and line.endswith("# sums.yaml:10") for line in lines)
    assert any(line.startswith("eval_steps: 10 ") and line.endswith("# default") for line in lines)
    assert any(line.startswith("  name: adder ") for line in lines)


def test_config_can_be_asked_for_what_was_written_only(here: Path) -> None:
    text = roll("config", "sums.yaml", "--written").stdout

    assert "eval_steps" not in text
    assert "save_steps: 2" in text


def test_a_report_on_nothing_is_refused(here: Path) -> None:
    result = roll("report", str(here))

    assert result.exit_code == 2
    assert "no run directory" in result.stderr
