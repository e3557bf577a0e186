"""Reading a YAML: composition, overrides, types, and every problem at once."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from roll_pipelines.config import ConfigError, WorkerConfig
from roll_pipelines.config.load import Loaded, load_config
from roll_pipelines.config.machine import Machine

MACHINE = Machine(strategies=frozenset({"fsdp2_train", "hf_infer", "vllm"}), devices_per_node=8)
HEAD = "pipeline_cls: users_pipeline.Attributed\n"

Write = Callable[..., Path]


def load(path: Path, *overrides: str) -> Loaded:
    return load_config(path, overrides, machine=MACHINE)


def problems(path: Path, *overrides: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        load(path, *overrides)
    return {problem.path: problem.render() for problem in caught.value.problems}


def role(loaded: Loaded, name: str) -> WorkerConfig:
    return loaded.config.roles()[name]


def test_roles_take_their_sections_and_the_defaults_for_the_rest(write: Write) -> None:
    loaded = load(write(HEAD + "student: {device_mapping: 'list(range(0, 4))'}\n"))

    student = role(loaded, "student")
    assert (student.name, student.world_size, student.num_gpus_per_worker) == ("student", 4, 1)
    assert student.worker_cls == "my_package.worker.StudentWorker"
    assert loaded.config.seed == 42


def test_vllm_workers_span_tensor_times_pipeline_parallel_devices(write: Write) -> None:
    strategy = "{strategy_name: vllm, strategy_config: {tensor_parallel_size: 2, pipeline_parallel_size: 2}}"
    loaded = load(write(HEAD + f"teacher: {{device_mapping: '0-7', strategy_args: {strategy}}}\n"))

    assert role(loaded, "teacher").num_gpus_per_worker == 4
    assert role(loaded, "teacher").world_size == 2


def test_roles_in_a_dict_are_named_after_field_and_key(write: Write) -> None:
    loaded = load(write(HEAD + "rewards: {math: {world_size: 3}}\n"))

    assert role(loaded, "rewards.math").name == "rewards-math"
    assert role(loaded, "rewards.math").world_size == 3


def test_a_section_is_merged_into_the_default_that_its_field_declares(write: Write) -> None:
    head = "pipeline_cls: users_pipeline.Filled\n"
    actor = role(
        load(write(head + "actor: {device_mapping: '0-3', training_args: {weight_decay: 1}}\n")), "actor"
    )

    assert (actor.worker_cls, actor.infer_batch_size, actor.training_args.weight_decay) == (
        "a.Worker",
        3,
        1.0,
    )
    assert actor.world_size == 4


def test_defaults_and_interpolation_and_overrides_are_merged_in_this_order(write: Write) -> None:
    write("seed: 1\nexp_name: base\nmax_steps: 7\n", "base.yaml")
    main = write("defaults: [base, _self_]\n" + HEAD + "seed: 2\noutput_dir: out/${exp_name}\n")

    config = load(main, "exp_name=cli", "student.world_size=2").config

    assert (config.seed, config.exp_name, config.output_dir, config.max_steps) == (2, "cli", "out/cli", 7)
    assert config.roles()["student"].world_size == 2


def test_every_problem_is_told_at_once_with_its_file_and_line(write: Write) -> None:
    write("seed: '3'\n", "base.yaml")
    main = write(
        "defaults: [base, _self_]\n"
        + HEAD
        + "custom_option: ten\nstudent:\n"
        + "  device_mapping: [0, 9]\n  strategy_args: {strategy_name: fsdp_train}\n"
    )

    found = problems(main, "savesteps=3")

    assert set(found) == {
        "seed",
        "custom_option",
        "student.device_mapping",
        "student.strategy_args.strategy_name",
        "savesteps",
    }
    assert "base.yaml:1" in found["seed"]
    assert "run.yaml:3" in found["custom_option"]
    assert "must be an integer" in found["custom_option"]
    assert "ids 0 to 7" in found["student.device_mapping"]
    assert "try:   fsdp2_train" in found["student.strategy_args.strategy_name"]
    assert "(command line)" in found["savesteps"]
    assert "try:   save_steps" in found["savesteps"]


def test_a_key_that_belongs_to_a_section_is_sent_there(write: Write) -> None:
    found = problems(write(HEAD + "student: {learning_rate: 0.1}\n"))

    assert "write it as training_args.learning_rate" in found["student.learning_rate"]


def test_a_key_that_the_reference_ignores_is_refused_and_said_so(write: Write) -> None:
    found = problems(write(HEAD + "student: {model_args: {flash_attn: fa2}}\n"))

    assert "ROLL accepts it and ignores it" in found["student.model_args.flash_attn"]
    assert "try:   attn_implementation" in found["student.model_args.flash_attn"]


@pytest.mark.parametrize(
    ("line", "path", "rule"),
    [
        ("max_steps: 1.5", "max_steps", "must be an integer"),
        ("max_steps: true", "max_steps", "must be an integer"),
        ("seed: null", "seed", "must be an integer"),
        ("runtime: rey", "runtime", "one of ray, local"),
        ("system_envs: [A]", "system_envs", "must be a section of strings"),
        ("student: 3", "student", "must be a section"),
        ("student: {device_mapping: {a: 1}}", "student.device_mapping", "or null"),
    ],
)
def test_a_wrong_type_is_said_in_the_words_of_a_yaml(write: Write, line: str, path: str, rule: str) -> None:
    assert rule in problems(write(HEAD + line + "\n"))[path]


def test_an_integer_may_stand_where_a_number_is_asked_for(write: Write) -> None:
    loaded = load(write(HEAD + "student: {training_args: {learning_rate: 1}}\n"))

    assert role(loaded, "student").training_args.learning_rate == 1.0


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("student: {device_mapping: '0-3', world_size: 3}", "student.world_size"),
        ("student: {device_mapping: [0, 1, 2], num_gpus_per_worker: 2}", "student.device_mapping"),
        ("student: {device_mapping: 'evil()'}", "student.device_mapping"),
        ("student: {world_size: 0}", "student.world_size"),
        ("student: {strategy_args: {strategy_name: fsdp2_train, strategy_config: {fsdp_size: 3}}}",
         "student.strategy_args.strategy_config"),
        ("max_steps: 0", "max_steps"),
        ("{prompt_length: 4, response_length: 4, sequence_length: 9}", "sequence_length"),
        ("pretrain: ./no/such/model\nstudent: {strategy_args: {strategy_name: hf_infer}}", "pretrain"),
        ("student: {training_args: {per_device_train_batch_size: 0}}",
         "student.training_args.per_device_train_batch_size"),
        ("student: {use_dynamic_batching_in_train: true}", "student.max_tokens_per_microbatch_in_train"),
    ],
)  # fmt: skip
def test_an_impossible_size_is_refused_at_its_path(write: Write, line: str, path: str) -> None:
    body = line.strip("{}").replace(", ", "\n") if line.startswith("{") else line

    assert set(problems(write(HEAD + body + "\n"))) == {path}


def test_a_disagreement_with_the_engines_own_devices_is_an_error(write: Write) -> None:
    engine = "strategy_args: {strategy_name: vllm, strategy_config: {tensor_parallel_size: 2}}"
    line = f"teacher: {{device_mapping: '0-3', num_gpus_per_worker: 1, {engine}}}\n"

    assert set(problems(write(HEAD + line))) == {"teacher.num_gpus_per_worker"}


def test_interpolations_that_name_nothing_are_all_told(write: Write) -> None:
    found = problems(write(HEAD + "exp_name: ${sead}\noutput_dir: ${nothing}\nseed: 1\n"))

    assert set(found) == {"exp_name", "output_dir"}
    assert "try:   ${seed}" in found["exp_name"]


def test_broken_yaml_is_told_with_its_line(write: Write) -> None:
    assert "run.yaml:3" in problems(write(HEAD + "seed: 1\nseed: 2\n"))[""]


def test_a_missing_file_names_its_nearest_neighbour(write: Write) -> None:
    write(HEAD, "sft_tiny.yaml")

    assert "sft_tiny.yaml" in problems(Path("sft_tinny.yaml"))["CONFIG"]


@pytest.mark.parametrize("override", ["seed=1,2", "seed", "=3"])
def test_an_override_that_names_no_single_value_is_refused(write: Write, override: str) -> None:
    assert problems(write(HEAD), override)


def test_an_override_may_have_the_name_of_a_folder_beside_the_file(write: Write, tmp_path: Path) -> None:
    (tmp_path / "seed").mkdir()

    assert load(write(HEAD), "seed=7").config.seed == 7


def test_a_tilde_takes_a_key_out(write: Write) -> None:
    loaded = load(write(HEAD + "seed: 7\nrewards: {math: {world_size: 1}}\n"), "~seed", "~rewards.math")

    assert loaded.config.seed == 42
    assert "rewards.math" not in loaded.config.roles()


def test_a_config_group_is_chosen_on_the_command_line(write: Write, tmp_path: Path) -> None:
    (tmp_path / "size").mkdir()
    write("# @package _global_\nmax_steps: 1\n", "size/small.yaml")
    write("# @package _global_\nmax_steps: '9'\n", "size/large.yaml")
    main = write("defaults: [{size: small}, _self_]\n" + HEAD)

    assert load(main).config.max_steps == 1
    assert "large.yaml:2" in problems(main, "size=large")["max_steps"]


def test_the_error_survives_a_process_boundary(write: Write) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(HEAD + "seed: x\n"))

    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.problems) == (str(caught.value), caught.value.problems)
