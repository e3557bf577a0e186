"""What a configuration of preference training refuses."""

import pytest

from roll_pipelines.config import WorkerConfig
from roll_pipelines.config.arguments import DataArguments, ModelArguments, StrategyArguments
from roll_pipelines.data import TinyModelConfig
from roll_pipelines.dpo import DPOConfig


def complaints(**fields: object) -> dict[str, str]:
    """Returns the rule that is broken by its path."""
    values: dict[str, object] = {
        "actor_train": WorkerConfig(data_args=DataArguments(file_name="pairs.jsonl")),
        "reference": WorkerConfig(strategy_args=StrategyArguments(strategy_name="hf_infer")),
        "tiny_model": TinyModelConfig(),
        "sequence_length": 8,
    }
    config = DPOConfig(**{**values, **fields})  # type: ignore[arg-type]  # fields by name
    return {problem.path: problem.rule for problem in config.problems()}


def test_a_whole_configuration_is_accepted() -> None:
    assert complaints() == {}


@pytest.mark.parametrize(
    ("fields", "path", "rule"),
    [
        ({"loss": "sigmoyd"}, "loss", "must name a registered preference loss"),
        ({"reference": WorkerConfig()}, "reference.strategy_args.strategy_name", "needs a reference"),
        ({"beta": 0.0}, "beta", "must be above 0"),
        ({"label_smoothing": 0.5}, "label_smoothing", "must be in"),
        ({"sequence_length": None}, "sequence_length", "must be given"),
        (
            {"actor_train": WorkerConfig()},
            "actor_train.data_args.file_name",
            "must be given unless a task is",
        ),
        (
            {
                "actor_train": WorkerConfig(
                    data_args=DataArguments(file_name="pairs.jsonl"),
                    use_dynamic_batching_in_train=True,
                    max_tokens_per_microbatch_in_train=15,
                )
            },
            "actor_train.max_tokens_per_microbatch_in_train",
            "at least twice sequence_length",
        ),
        (
            {
                "actor_train": WorkerConfig(
                    data_args=DataArguments(file_name="pairs.jsonl", messages="messages"),
                )
            },
            "actor_train.data_args.messages",
            "must be left out",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_its_path(fields: dict[str, object], path: str, rule: str) -> None:
    found = complaints(**fields)
    assert list(found) == [path]
    assert rule in found[path]


def test_a_loss_that_needs_no_reference_is_accepted_without_one() -> None:
    assert complaints(loss="simpo", reference=WorkerConfig()) == {}


def test_a_policy_with_an_adapter_needs_no_reference_role() -> None:
    policy = WorkerConfig(
        data_args=DataArguments(file_name="pairs.jsonl"), model_args=ModelArguments(lora_rank=4)
    )
    assert complaints(actor_train=policy, reference=WorkerConfig()) == {}
