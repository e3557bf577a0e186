"""An engine that somebody else wrote, built and installed on its own, keeps the contract."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from third_parties import unpacked_wheel

HERE = Path(__file__).resolve().parent

CHECK = """
from roll_strategies import StrategyContext, TrainSettings, build_strategy, strategy_names
from roll_strategies.testing import check_resume, check_scoring, check_states, check_training
from roll_strategies.testing import check_update_target

assert "unigram_train" in strategy_names()


def make(batching):
    context = StrategyContext(
        strategy_name="unigram_train", training_args=TrainSettings(learning_rate=0.5), batching=batching
    )
    strategy = build_strategy(context)
    strategy.initialize()
    return strategy


check_scoring(make, vocab_size=32)
check_states(make)
check_update_target(make)
check_training(make, vocab_size=32)
check_resume(make, vocab_size=32)
print("kept")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the engine as its wheel installs it."""
    return unpacked_wheel(HERE / "third_party_engine", tmp_path_factory.mktemp("wheel"))


def test_a_third_party_engine_is_found_by_name_and_keeps_the_contract(installed: Path) -> None:
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.run(
        [sys.executable, "-c", CHECK],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "kept\n"
