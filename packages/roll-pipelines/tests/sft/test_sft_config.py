"""What a configuration of supervised fine-tuning derives and what it refuses."""

from dataclasses import replace

import pytest

from roll_pipelines.config import ConfigError, WorkerConfig
from roll_pipelines.config.arguments import DataArguments, StrategyArguments, TrainingArguments
from roll_pipelines.config.load import check_config
from roll_pipelines.data import TaskConfig, TinyModelConfig
from roll_pipelines.sft import SFTConfig


def role(**changes: object) -> WorkerConfig:
    made = WorkerConfig(strategy_args=StrategyArguments(strategy_name="fsdp2_train"), world_size=2)
    return replace(made, **changes)  # type: ignore[arg-type]  # fields of several types


def valid() -> SFTConfig:
    return SFTConfig(sft_train=role(), tiny_model=TinyModelConfig(), task=TaskConfig(), sequence_length=12)


def test_a_valid_configuration_names_its_worker_and_its_batch() -> None:
    training = TrainingArguments(per_device_train_batch_size=3, gradient_accumulation_steps=4)
    config = replace(valid(), sft_train=role(training_args=training))
    check_config(config)
    assert config.batch_size() == 24
    assert config.sft_train.worker_cls == "roll_pipelines.workers.SFTWorker"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"tiny_model": None}, "pretrain"),
        ({"task": None}, "sft_train.data_args.file_name"),
        ({"sft_train": role(data_args=DataArguments(file_name="a.jsonl"))}, "sft_train.data_args.file_name"),
        ({"validation_files": ["a.jsonl"]}, "validation_files"),
        (
            {
                "task": None,
                "sft_train": role(data_args=DataArguments(file_name=["a", "b"], file_weights=[1.0])),
            },
            "sft_train.data_args.file_weights",
        ),
        ({"num_problems": 0}, "num_problems"),
        ({"sequence_length": None}, "sequence_length"),
        (
            {"sft_train": role(training_args=TrainingArguments(num_train_epochs=0.0))},
            "sft_train.training_args.num_train_epochs",
        ),
    ],
)
def test_a_broken_rule_is_named_with_its_path(changes: dict[str, object], path: str) -> None:
    with pytest.raises(ConfigError, match=path):
        check_config(replace(valid(), **changes))  # type: ignore[arg-type]  # fields of several types
