"""From a worker's configuration to an engine, and the messages on the way there."""

import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

import roll_strategies
from roll_dispatch import RankInfo
from roll_strategies import (
    BatchSettings,
    Capabilities,
    StrategyConfigError,
    StrategyContext,
    StrategyNotInstalled,
    TrainSettings,
    UnknownStrategy,
    build_strategy,
    check_strategy_name,
    context_of,
    create_strategy,
    factory,
    load_strategy,
    missing_library,
    strategy_names,
)


@dataclass
class Owner:
    """What a worker looks like to a strategy."""

    worker_config: object
    pipeline_config: object = field(
        default_factory=lambda: SimpleNamespace(seed=3, model_update_buffer_size_mb=2)
    )
    rank: int = 1
    world_size: int = 2
    local_rank: int = 1
    master_addr: str = "127.0.0.1"
    master_port: int = 1234
    cluster_name: str = "reference"
    device_type: str = "cpu"
    collective_backend: str = "gloo"
    rank_info: RankInfo = field(default_factory=lambda: RankInfo(rank=1, world_size=2))


def config_of(name: str | None = "mock_infer", **values: object) -> SimpleNamespace:
    engine = SimpleNamespace(strategy_name=name, strategy_config=values.pop("strategy_config", {}))
    return SimpleNamespace(strategy_args=engine, **values)


def test_importing_the_door_leaves_heavy_libraries_alone() -> None:
    code = (
        "import roll_strategies, sys;"
        "print(sorted({'ray', 'vllm', 'sglang', 'megatron', 'transformers', 'peft'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_every_name_of_the_door_is_there() -> None:
    assert [name for name in roll_strategies.__all__ if not hasattr(roll_strategies, name)] == []


def test_an_owner_s_configuration_is_read_and_its_coordinates_are_published() -> None:
    owner = Owner(
        config_of(
            training_args=SimpleNamespace(
                learning_rate=0.5, per_device_train_batch_size=3, max_grad_norm=0.0
            ),
            model_args=SimpleNamespace(model_name_or_path="somewhere", dtype="bf16", lora_rank=None),
            infer_batch_size=5,
            use_dynamic_batching_in_train=True,
            max_tokens_per_microbatch_in_train=64,
            backend_timeout=7.0,
        )
    )
    context = context_of(owner)
    assert (context.rank, context.world_size, context.seed, context.cluster_name) == (1, 2, 3, "reference")
    assert context.update_bucket_bytes == 2 * 1024 * 1024
    assert context.collective_timeout_s == 7.0
    assert context.batching == BatchSettings(train_rows=3, infer_rows=5, train_tokens=64)
    assert context.training.learning_rate == 0.5
    assert context.training.max_grad_norm is None
    assert context.model.model_name_or_path == "somewhere"
    strategy = create_strategy(worker=owner)
    assert owner.rank_info.dp_size == 1
    strategy.initialize()
    assert (owner.rank_info.dp_rank, owner.rank_info.dp_size) == (1, 2)


def test_a_role_without_a_strategy_is_told_so() -> None:
    with pytest.raises(
        StrategyConfigError, match=r"'reference' has no strategy: set strategy_args\.strategy_name"
    ):
        create_strategy(worker=Owner(config_of(None)))


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        UnknownStrategy, match=r"no strategy named 'fsdp_train'; did you mean 'fsdp2_train'\?"
    ):
        check_strategy_name("fsdp_train")
    assert {"hf_infer", "fsdp2_train", "fsdp2_infer", "mock_infer", "mock_train"} <= set(strategy_names())


def test_a_known_engine_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = EntryPoint("vllm", "roll_strategies.vllm:VllmStrategy", factory.GROUP)
    foreign = EntryPoint("theirs", "no_such_package.engine:Engine", factory.GROUP)
    found = {"vllm": absent, "theirs": foreign}
    monkeypatch.setattr(
        factory, "entry_points", lambda group, name=None: [found[name]] if name else found.values()
    )
    with pytest.raises(StrategyNotInstalled, match=r"pip install 'roll-strategies\[vllm\]'"):
        load_strategy("vllm")
    with pytest.raises(StrategyNotInstalled, match="'theirs' is known but needs 'no_such_package'"):
        load_strategy("theirs")


def test_a_missing_library_is_known_without_importing_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs.py").write_text("raise RuntimeError('nobody shall import me')")
    (tmp_path / "theirs-1.dist-info").mkdir()
    (tmp_path / "theirs-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: theirs\nVersion: 1\nRequires-Dist: torch\n"
        "Requires-Dist: torch>=2; extra == 'here'\nRequires-Dist: no-such-library>=1; extra == 'gone'\n"
    )
    (tmp_path / "theirs-1.dist-info" / "entry_points.txt").write_text(
        "[roll.strategies]\nthere = theirs:Engine [here]\nneedy = theirs:Engine [here, gone]\n"
        "lost = no_such_package:Engine\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    assert missing_library("there") is None
    needy, lost = missing_library("needy"), missing_library("lost")
    assert needy is not None
    assert (needy.name, needy.remedy[:25]) == ("no-such-library", "install 'no-such-library'")
    assert lost is not None
    assert lost.name == "no_such_package"
    assert missing_library("mock_infer") is None
    vllm = missing_library("vllm")
    assert (vllm is None) == (find_spec("vllm") is not None)
    assert vllm is None or "pip install 'roll-strategies[vllm]'" in vllm.remedy
    with pytest.raises(UnknownStrategy, match="did you mean 'vllm'"):
        missing_library("vlm")


def test_an_unknown_option_is_answered_with_the_nearest_and_a_wrong_type_with_the_right_one() -> None:
    with pytest.raises(
        StrategyConfigError, match=r"strategy_config\.vocab_sise .* did you mean 'vocab_size'\?"
    ):
        create_strategy(worker=Owner(config_of(strategy_config={"vocab_sise": 3})))
    with pytest.raises(
        StrategyConfigError, match="vocab_size of strategy 'mock_infer' must be int, got 'many'"
    ):
        create_strategy(worker=Owner(config_of(strategy_config={"vocab_size": "many"})))


def test_what_an_engine_cannot_do_is_refused() -> None:
    context = StrategyContext(strategy_name="hf_infer", batching=BatchSettings(packing=True))
    with pytest.raises(StrategyConfigError, match="'hf_infer' of 'default' cannot do packing"):
        build_strategy(context)
    assert Capabilities(trains=True).missing(Capabilities(trains=True, lora=True, abort=True)) == [
        "lora",
        "abort",
    ]


def test_a_schedule_that_could_never_move_is_refused() -> None:
    with pytest.raises(
        StrategyConfigError, match=r"'cosine' decays over training_args\.max_steps, which is 0"
    ):
        TrainSettings(lr_scheduler_type="cosine")
    with pytest.raises(StrategyConfigError, match="lr_scheduler_type must be one of"):
        TrainSettings(lr_scheduler_type="exponential")


@pytest.mark.parametrize(
    "error",
    [
        roll_strategies.ModelNotFound("no directory 'x'"),
        UnknownStrategy("no strategy"),
        StrategyNotInstalled("needs x"),
        roll_strategies.WeightSyncError("update 1"),
        roll_strategies.StaleWeights("mixed"),
    ],
)
def test_errors_survive_the_way_between_processes(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
