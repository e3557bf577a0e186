"""The transfer backend of a run: what is refused, and that a run by it is the same run."""

import json
from pathlib import Path

import pytest

from roll_pipelines import WorkerConfig
from roll_pipelines.config import BaseConfig, ConfigError, TransferConfig
from roll_pipelines.config.arguments import DataArguments, StrategyArguments, TrainingArguments
from roll_pipelines.config.load import check_config
from roll_pipelines.data import TinyModelConfig, save_tiny_model
from roll_pipelines.sft import SFTConfig, SFTPipeline
from roll_pipelines.testing import last_checkpoint, run_to_end


@pytest.mark.parametrize(
    ("name", "settings", "path", "message"),
    [
        ("fils", {}, "backend_name", "try:   files (all: files, object_store)"),
        ("TransferQueue", {}, "backend_name", "must name an installed transfer backend"),
        ("files", {}, "backend_config", "give the absolute path of a folder that every node sees"),
        ("files", {"folder": "/tmp", "min": 1}, "backend_config", "it has folder, min_bytes, mapped"),
        (None, {"folder": "/tmp"}, "backend_config", "object_store has no settings"),
    ],
)
def test_a_wrong_backend_is_refused_before_anything_starts(
    name: str | None, settings: dict[str, object], path: str, message: str
) -> None:
    config = BaseConfig(transfer_backend=TransferConfig(backend_name=name, backend_config=settings))
    with pytest.raises(ConfigError) as refused:
        check_config(config)
    [problem] = refused.value.problems
    assert problem.path == f"transfer_backend.{path}"
    assert message in problem.render()


def configuration(folder: Path, name: str, transfer: TransferConfig) -> SFTConfig:
    role = WorkerConfig(
        strategy_args=StrategyArguments(strategy_name="fsdp2_train"),
        training_args=TrainingArguments(learning_rate=0.05, per_device_train_batch_size=4),
        data_args=DataArguments(file_name=str(folder / "rows.jsonl")),
    )
    return SFTConfig(
        sft_train=role,
        runtime="local",
        pretrain=str(folder / "model"),
        output_dir=str(folder / name),
        track_with=[],
        sequence_length=48,
        max_steps=2,
        transfer_backend=transfer,
    )


def test_a_run_by_files_is_the_run_by_the_object_store_and_leaves_none(tmp_path: Path) -> None:
    sizes = TinyModelConfig(alphabet="usertaisn: \nbc", hidden_size=16, num_layers=1, max_positions=64)
    save_tiny_model(tmp_path / "model", sizes, seed=0)
    rows = [{"prompt": "user"[: 1 + n % 4], "response": "taisnbc"[n % 3 : 2 + n % 6]} for n in range(10)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))

    plain = configuration(tmp_path, "plain", TransferConfig(backend_name="object_store"))
    wanted = run_to_end(SFTPipeline, plain)

    folder = tmp_path / "payloads"
    settings: dict[str, object] = {"folder": str(folder), "min_bytes": 0}
    config = configuration(tmp_path, "files", TransferConfig(backend_name="files", backend_config=settings))
    with SFTPipeline(config) as pipeline:
        [run] = folder.glob("roll-*/")
        before = run.stat().st_mtime_ns
        pipeline.run()
        assert run.stat().st_mtime_ns > before  # files have come and gone in it
        assert list(run.iterdir()) == []
        history = pipeline.state.log_history
    found = [{key: row[key] for key in row if not key.startswith("time/")} for row in history]
    assert found == wanted
    assert list(folder.iterdir()) == []
    weights = [
        (last_checkpoint(one, "sft_train") / "model.safetensors").read_bytes() for one in (plain, config)
    ]
    assert weights[0] == weights[1]
