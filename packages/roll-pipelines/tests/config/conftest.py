"""A user's pipeline module and a YAML, as files in a directory of their own."""

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MODULE = """
from dataclasses import dataclass, field

from roll_pipelines.config import BaseConfig, WorkerConfig


@dataclass
class TwoRolesConfig(BaseConfig):
    student: WorkerConfig = field(default_factory=WorkerConfig)
    teacher: WorkerConfig = field(default_factory=WorkerConfig)
    rewards: dict[str, WorkerConfig] = field(default_factory=dict)
    custom_option: int = 1

    def __post_init__(self):
        super().__post_init__()
        if self.student.worker_cls is None:
            self.student.worker_cls = "my_package.worker.StudentWorker"


@dataclass
class FilledConfig(BaseConfig):
    actor: WorkerConfig = field(
        default_factory=lambda: WorkerConfig(worker_cls="a.Worker", device_mapping=[0, 1], infer_batch_size=3)
    )


class Filled:
    config_cls = FilledConfig


class Attributed:
    config_cls = TwoRolesConfig


class Annotated:
    def __init__(self, pipeline_config: TwoRolesConfig) -> None: ...


class Silent:
    def __init__(self, pipeline_config): ...


class NoConfig:
    config_cls = dict
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Returns a function that writes a YAML beside the module `users_pipeline` and gives its path."""
    (tmp_path / "users_pipeline.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def write_yaml(text: str, name: str = "run.yaml") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text).lstrip())
        return path

    yield write_yaml
    sys.modules.pop("users_pipeline", None)
