"""What a configuration of RLVR derives and what it refuses."""

from dataclasses import replace

import pytest

from roll_pipelines.config import ConfigError, WorkerConfig
from roll_pipelines.config.arguments import GeneratingArguments, StrategyArguments, TrainingArguments
from roll_pipelines.config.load import check_config
from roll_pipelines.data import TaskConfig, TinyModelConfig
from roll_pipelines.rlvr import RewardConfig, RLVRConfig, WarmUpConfig
from roll_pipelines.rlvr.config import ValidationConfig


def engine(name: str) -> StrategyArguments:
    return StrategyArguments(strategy_name=name)


def valid() -> RLVRConfig:
    return RLVRConfig(
        tiny_model=TinyModelConfig(),
        prompt_length=8,
        response_length=4,
        rollout_batch_size=3,
        actor_train=WorkerConfig(
            world_size=2,
            strategy_args=engine("fsdp2_train"),
            training_args=TrainingArguments(per_device_train_batch_size=2, gradient_accumulation_steps=2),
        ),
        actor_infer=WorkerConfig(
            strategy_args=engine("hf_infer"), generating_args=GeneratingArguments(num_return_sequences=5)
        ),
    )


def refused(config: RLVRConfig) -> str:
    with pytest.raises(ConfigError) as error:
        check_config(config)
    return str(error.value)


def test_a_valid_configuration_derives_workers_sizes_and_the_task_of_the_reward() -> None:
    config = valid()
    check_config(config)
    assert config.group_size == 5
    assert config.mini_batches() == 2  # 15 rows, 8 of them an optimizer step
    assert config.sequence_length == 12
    assert config.actor_train.worker_cls == "roll_pipelines.workers.ActorWorker"
    assert config.reward.worker_cls == "roll_pipelines.workers.RewardWorker"
    assert config.reward.reward_args == {"task": "spell_backward", "task_args": {}}


def test_what_the_user_wrote_about_reward_and_worker_stays() -> None:
    config = RLVRConfig(
        reward=RewardConfig(worker_cls="my.Judge", reward_args={"task": "gcd"}),
        task=TaskConfig(name="chain_sum"),
    )
    assert config.reward.worker_cls == "my.Judge"
    assert config.reward.reward_args == {"task": "gcd"}


@pytest.mark.parametrize(
    ("changes", "path", "rule"),
    [
        ({"tiny_model": None}, "pretrain", "must name a model directory, or tiny_model must be given"),
        ({"pretrain": "org/model"}, "tiny_model", "must be left out when pretrain names a model"),
        ({"prompt_length": None, "sequence_length": None}, "prompt_length", "must be given"),
        ({"rollout_batch_size": 0}, "rollout_batch_size", "must be at least 1"),
        ({"ppo_epochs": 0}, "ppo_epochs", "must be at least 1"),
        ({"pg_clip_low": 1.0}, "pg_clip_low", "below 1"),
        ({"pg_clip_high": -0.1}, "pg_clip_high", "must not be negative"),
        ({"dual_clip": 1.0}, "dual_clip", "must be above 1"),
        ({"validation": ValidationConfig(num_samples=0)}, "validation.num_samples", "must be at least 1"),
        ({"task": TaskConfig(num_held_out=0)}, "task.num_held_out", "must be at least 1"),
        ({"warm_up": WarmUpConfig(steps=-1)}, "warm_up.steps", "must not be negative"),
        ({"warm_up": WarmUpConfig(steps=1)}, "warm_up.strategy_args.strategy_name", "must name an engine"),
        ({"kl_loss_coef": 0.1}, "reference.strategy_args.strategy_name", "must name an engine"),
        ({"actor_train": WorkerConfig()}, "actor_train.strategy_args.strategy_name", "must name an engine"),
    ],
)
def test_a_broken_rule_is_named_with_its_path(changes: dict[str, object], path: str, rule: str) -> None:
    message = refused(replace(valid(), **changes))  # type: ignore[arg-type]  # fields of several types
    assert path in message
    assert rule in message


@pytest.mark.parametrize(
    ("sampling", "path"),
    [
        (GeneratingArguments(temperature=0.0), "temperature"),
        (GeneratingArguments(do_sample=False), "temperature"),
        (GeneratingArguments(max_new_tokens=5), "max_new_tokens"),
    ],
)
def test_sampling_that_gives_nothing_to_learn_is_refused(sampling: GeneratingArguments, path: str) -> None:
    config = valid()
    config.actor_infer.generating_args = sampling
    assert f"actor_infer.generating_args.{path}" in refused(config)


def test_weights_that_are_not_sent_every_step_are_refused() -> None:
    config = valid()
    config.actor_infer.model_update_frequency = 2
    assert "actor_infer.model_update_frequency" in refused(config)


def test_several_broken_rules_are_named_at_once() -> None:
    message = refused(replace(valid(), ppo_epochs=0, rollout_batch_size=0))
    assert "ppo_epochs" in message
    assert "rollout_batch_size" in message


def test_roles_that_the_settings_leave_out_are_not_started() -> None:
    config = valid()
    assert set(config.started_roles()) == {"actor_train", "actor_infer", "reward"}
    config = replace(config, kl_loss_coef=0.1, warm_up=WarmUpConfig(steps=2))
    assert set(config.started_roles()) == set(config.roles())
