"""A tiny model that vLLM can serve, and one engine on it that all tests of the folder share."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_vllm import Engine, make_engine, save_model

HOW = "vllm is not installed here; `python tools/check_engine.py vllm` runs these where it is"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lets vLLM and what it imports warn; the warnings are not about our code."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(scope="session", autouse=True)
def vllm_is_here() -> None:
    """Skips the whole folder where vLLM is missing."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip(HOW)
    # vLLM reads it once: without it, it wants a NUMA node for each of several processes.
    cores = sorted(os.sched_getaffinity(0))
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"{cores[0]}|{cores[-1]}"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"), tied=False)


@pytest.fixture(scope="session")
def engine(model: Path) -> Iterator[Engine]:
    """An engine with the weights of `model`, or with those that a test has sent it since."""
    strategy = make_engine(model)
    strategy.initialize()
    yield strategy
    strategy.close()
