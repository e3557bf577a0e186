"""The trackers that are extras, each with its real library, installed apart and writing to disk."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

SCRIPT = """
import sys
from pathlib import Path

from roll_pipelines.config import BaseConfig
from roll_pipelines.tracking import create_tracker

name, run_dir, settings = sys.argv[1], sys.argv[2], eval(sys.argv[3])
config = BaseConfig(output_dir=run_dir, track_with=[name], tracker_kwargs={name: settings})
tracker = create_tracker(config)
tracker.log({"actor/loss": 1.5}, step=0)
tracker.log({"actor/loss": 0.5}, step=1)
tracker.log_text("sample", "an <answer>", step=1)
tracker.close()
tracker.close()
if name == "mlflow":
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{run_dir}/mlflow.db")
    run = client.search_runs([client.get_experiment_by_name("roll").experiment_id])[0]
    history = client.get_metric_history(run.info.run_id, "actor/loss")
    assert [(entry.step, entry.value) for entry in history] == [(0, 1.5), (1, 0.5)]
    assert run.info.status == "FINISHED"
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings", "written"),
    [
        ("wandb", {"mode": "offline"}, "wandb/offline-run-*/*.wandb"),
        ("swanlab", {"mode": "offline"}, "swanlab/run-*/*.swanlab"),
        ("mlflow", {}, "mlflow/*/artifacts/sample/1.txt"),
        ("trackio", {}, "trackio/roll*.db"),
    ],
)
def test_a_service_takes_every_step_without_a_network(
    tmp_path: Path, name: str, settings: dict[str, str], written: str
) -> None:
    python, run_dir = tmp_path / "environment" / "bin" / "python", tmp_path / "run"
    run_dir.mkdir()
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "environment")], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", name], check=True)
    sources = [str(path) for path in sorted((Path(__file__).resolve().parents[1] / "packages").glob("*/src"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sources, sysconfig.get_path("purelib")])}
    environment["TRACKIO_DIR"] = str(run_dir / "trackio")
    subprocess.run([python, "-c", SCRIPT, name, str(run_dir), repr(settings)], env=environment, check=True)

    assert list(run_dir.glob(written)), sorted(str(path) for path in run_dir.rglob("*"))
