"""No key of a configuration is taken and then ignored: each is read somewhere by its name."""

import ast
import dataclasses
import importlib.util
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

from roll_pipelines.config import BaseConfig
from roll_pipelines.distill import DistillConfig
from roll_pipelines.dpo import DPOConfig
from roll_pipelines.rlvr import RLVRConfig
from roll_pipelines.sft import SFTConfig

PACKAGES = ("roll_pipelines", "roll_executor", "roll_strategies", "roll_resources")
DECLARING = ("reference_names.py", "other_names.py")
"""Files of `roll_pipelines` that say a name without reading what it holds."""
UNREAD = {"variables"}
"""Read by `${variables.x}` in the YAML alone, as its docstring says."""


def sources() -> Iterator[Path]:
    """Yields the source files of all packages, wherever they are installed, that may read a key."""
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        for folder in spec.submodule_search_locations or ():
            for path in Path(folder).rglob("*.py"):
                if package != "roll_pipelines" or path.name not in DECLARING:
                    yield path


def names_read(path: Path) -> set[str]:
    """Returns the attributes that a file reads, and its strings, by which `getattr` and mappings read."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def sections(config: type) -> Iterator[type]:
    """Yields a configuration and the dataclasses in it."""
    yield config
    for hint in typing.get_type_hints(config).values():
        for part in (hint, *typing.get_args(hint)):
            if isinstance(part, type) and dataclasses.is_dataclass(part):
                yield from sections(part)


def ignored(config: type, read: set[str]) -> set[str]:
    """Returns the keys of a configuration that nothing reads."""
    keys = {field.name for section in sections(config) for field in dataclasses.fields(section)}
    return keys - read - UNREAD


@pytest.fixture(scope="module")
def read() -> set[str]:
    return set().union(*(names_read(path) for path in sources()))


@pytest.mark.parametrize("config", [BaseConfig, RLVRConfig, SFTConfig, DPOConfig, DistillConfig])
def test_every_key_is_read_somewhere(config: type, read: set[str]) -> None:
    assert ignored(config, read) == set()


def test_a_key_that_nothing_reads_is_found(read: set[str]) -> None:
    @dataclasses.dataclass
    class Careless(BaseConfig):
        num_of_sheep_to_count: int = 3

    assert ignored(Careless, read) == {"num_of_sheep_to_count"}
