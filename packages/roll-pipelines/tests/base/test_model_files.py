"""The files of models are there, once per node, before a worker opens them."""

from pathlib import Path

import pytest

from roll_pipelines import BaseConfig, BasePipeline, WorkerConfig
from roll_pipelines.config import ModelArguments, StrategyArguments
from roll_pipelines.model_files import Fetched, ModelFilesError, fetch_model, prepare_models
from roll_resources import ResourceManager


def test_a_directory_is_only_looked_for(tmp_path: Path) -> None:
    assert fetch_model(str(tmp_path))[1] == ""
    assert "no such directory" in fetch_model(str(tmp_path / "nothing"))[1]


def test_a_hub_name_that_cannot_be_fetched_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    told = fetch_model("nobody/nothing")[1]
    assert "cannot be fetched from the hub" in told


def test_each_model_is_fetched_once_however_many_roles_load_it() -> None:
    asked: list[str] = []

    def fetch(name: str) -> Fetched:
        asked.append(name)
        return "here", "" if name != "b/b" else "it is gone"

    with ResourceManager(runtime="local") as manager:
        prepare_models(manager, ["a/a", None, "a/a", "c/c"], fetch=fetch)
        assert asked == ["a/a", "c/c"]
        with pytest.raises(ModelFilesError, match=r"'b/b' is missing on 1 of 1 .* node here: it is gone"):
            prepare_models(manager, ["b/b"], fetch=fetch)


def test_a_run_whose_model_is_missing_ends_before_a_worker_starts(tmp_path: Path) -> None:
    role = WorkerConfig(
        name="actor",
        worker_cls="roll_pipelines.workers.Worker",
        strategy_args=StrategyArguments(strategy_name="hf_infer"),
        model_args=ModelArguments(model_name_or_path=str(tmp_path / "nothing")),
    )
    config = BaseConfig(runtime="local", output_dir=str(tmp_path / "out"), track_with=[])
    with BasePipeline(config) as pipeline, pytest.raises(ModelFilesError, match="nothing' is missing"):
        pipeline.create_clusters_parallel([("actor", "actor", role.worker_cls, role)])
