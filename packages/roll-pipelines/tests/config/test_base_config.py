"""Configurations that are built in Python."""

from dataclasses import dataclass, field

import pytest

from roll_pipelines.config import (
    BaseConfig,
    ConfigError,
    ModelArguments,
    Problem,
    StrategyArguments,
    WorkerConfig,
)
from roll_pipelines.config.load import check_config
from roll_pipelines.config.machine import Machine


@dataclass
class OneRole(BaseConfig):
    actor: WorkerConfig = field(default_factory=WorkerConfig)

    def problems(self):  # type: ignore[no-untyped-def]  # what a user writes
        yield from super().problems()
        if self.seed == 13:
            yield Problem(path="seed", rule="must not be 13", value=13)


def test_lengths_and_environments_and_models_are_derived_where_nobody_wrote_them() -> None:
    actor = WorkerConfig(strategy_args=StrategyArguments(strategy_name="hf_infer"), system_envs={"A": "role"})
    config = OneRole(
        prompt_length=3, response_length=4, pretrain="m", system_envs={"A": "all", "B": "all"}, actor=actor
    )

    assert config.sequence_length == 7
    assert config.actor.model_args.model_name_or_path == "m"
    assert config.actor.system_envs == {"A": "role", "B": "all"}
    assert config.actor.timeout_s == config.rpc_timeout


def test_what_was_written_is_never_overwritten() -> None:
    actor = WorkerConfig(
        name="mine",
        world_size=5,
        timeout_s=1.0,
        strategy_args=StrategyArguments(strategy_name="hf_infer"),
        model_args=ModelArguments(model_name_or_path="own"),
    )
    config = OneRole(prompt_length=3, response_length=4, sequence_length=9, pretrain="m", actor=actor)

    assert (config.actor.name, config.actor.world_size, config.actor.timeout_s) == ("mine", 5, 1.0)
    assert config.actor.model_args.model_name_or_path == "own"
    assert config.sequence_length == 9


def test_short_names_of_number_formats_mean_the_same() -> None:
    assert ModelArguments(dtype="bf16").dtype == "bfloat16"


def test_two_configurations_share_nothing() -> None:
    first, second = OneRole(), OneRole()
    first.actor.strategy_args.strategy_config["a"] = 1

    assert second.actor.strategy_args.strategy_config == {}


def test_rules_of_a_subclass_are_checked_beside_ours() -> None:
    with pytest.raises(ConfigError, match="must not be 13") as caught:
        check_config(OneRole(seed=13, max_steps=0), machine=Machine(strategies=frozenset()))

    assert {problem.path for problem in caught.value.problems} == {"seed", "max_steps"}
