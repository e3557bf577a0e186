"""A ROLL user's YAML: names that mean the same are read, what means nothing here is refused and said."""

from collections.abc import Callable
from pathlib import Path

import pytest

from roll_pipelines.config.load import Loaded, load_config
from roll_pipelines.config.machine import Machine
from roll_pipelines.config.problems import ConfigError

Write = Callable[..., Path]
MACHINE = Machine(strategies=frozenset({"fsdp2_train", "hf_infer"}), devices_per_node=None)
RLVR = """
pipeline_cls: rlvr
exp_name: qwen2.5-7B-rlvr-config
pretrain: org/model
track_with: tensorboard
tracker_kwargs: {log_dir: ./output/tensorboard}
checkpoint_config: {type: file_system, output_dir: ./checkpoints}
num_gpus_per_node: 8
rollout_batch_size: 64
prompt_length: 2048
response_length: 4096
num_return_sequences_in_group: 8
pg_clip: 0.1
transfer_backend: null
actor_train:
  model_args: {disable_gradient_checkpointing: false, dtype: bf16, model_type: null}
  training_args: {learning_rate: 1.0e-6, per_device_train_batch_size: 1, gradient_accumulation_steps: 32}
  strategy_args: {strategy_name: fsdp2_train, strategy_config: null}
  device_mapping: list(range(0,8))
actor_infer:
  strategy_args: {strategy_name: hf_infer}
  generating_args: {max_new_tokens: '${response_length}', temperature: 0.99, num_beams: 1}
  device_mapping: list(range(0,8))
"""


def load(path: Path) -> Loaded:
    return load_config(path, machine=MACHINE)


def problems(path: Path) -> dict[str, str]:
    with pytest.raises(ConfigError) as refused:
        load(path)
    return {problem.path: problem.render() for problem in refused.value.problems}


def test_a_rlvr_file_of_roll_is_read_as_it_is_meant(write: Write) -> None:
    loaded = load(write(RLVR))
    config = loaded.config
    roles = config.roles()

    assert roles["actor_infer"].generating_args.num_return_sequences == 8
    assert (config.pg_clip_low, config.pg_clip_high) == (0.1, 0.1)  # type: ignore[attr-defined]  # of RLVRConfig
    assert roles["actor_train"].model_args.gradient_checkpointing is True
    assert roles["actor_train"].world_size == 8
    assert config.tracker_kwargs == {"tensorboard": {"log_dir": "./output/tensorboard"}}
    assert config.checkpoint_config.output_dir == "./checkpoints"
    assert str(loaded.sources["pg_clip_low"]).endswith(
        f":{RLVR.strip().splitlines().index('pg_clip: 0.1') + 1}"
    )


def test_an_option_of_roll_that_is_not_here_is_refused_with_what_to_write(write: Write) -> None:
    found = problems(
        write(
            RLVR.replace("transfer_backend: null", "transfer_backend: {backend_name: TransferQueue}")
            .replace("type: file_system", "type: oss")
            .replace("num_beams: 1", "num_beams: 4")
            .replace("exp_name:", "use_kl_loss: true\nlogging_dir: ./logs\nexp_name:")
        )
    )
    assert "files, object_store" in found["transfer_backend.backend_name"]
    assert "fsspec" in found["checkpoint_config.type"]
    assert "sampled" in found["actor_infer.generating_args.num_beams"]
    assert "kl_loss_coef" in found["use_kl_loss"]
    assert "error.txt" in found["logging_dir"]


def test_two_names_of_one_option_are_refused_at_the_line_of_the_other_name(write: Write) -> None:
    found = problems(write(RLVR + "pg_clip_low: 0.2\n"))
    assert "pg_clip_low" in found["pg_clip"]
    line = (RLVR + "pg_clip_low: 0.2\n").strip().splitlines().index("pg_clip: 0.1") + 1
    assert f"run.yaml:{line}" in found["pg_clip"]


def test_a_wrong_value_under_another_name_is_told_at_its_line(write: Write) -> None:
    found = problems(write(RLVR.replace("pg_clip: 0.1", "pg_clip: much")))
    line = RLVR.strip().splitlines().index("pg_clip: 0.1") + 1
    assert f"run.yaml:{line}" in found["pg_clip_low"]


def test_another_name_means_nothing_in_a_pipeline_without_that_option(write: Write) -> None:
    found = problems(write("pipeline_cls: sft\npretrain: org/model\nsequence_length: 8\npg_clip: 0.1\n"))
    assert "unknown key" in found["pg_clip"]


def test_the_names_of_supervised_training_lead_to_the_role_that_learns(write: Write) -> None:
    loaded = load(
        write(
            "pipeline_cls: sft\npretrain: org/model\nsequence_length: 8\ntrack_with: stdout\n"
            "global_template: qwen\nprompt_key: instruction\nresponse_key: output\nmax_grad_norm: 0.5\n"
            "sft_train: {strategy_args: {strategy_name: fsdp2_train}, data_args: {file_name: rows.jsonl}}\n"
        )
    )
    role = loaded.config.roles()["sft_train"]
    assert (role.data_args.prompt, role.data_args.response) == ("instruction", "output")
    assert (role.data_args.template, role.training_args.max_grad_norm) == ("qwen", 0.5)
    assert loaded.config.track_with == "console"
