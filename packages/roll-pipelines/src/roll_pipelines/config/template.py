"""A YAML to begin with: every option of a pipeline with what it is for, all at their defaults."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import yaml

from roll_pipelines.config.base_config import BaseConfig
from roll_pipelines.config.container import to_container
from roll_pipelines.config.documented import field_texts
from roll_pipelines.config.worker_config import WorkerConfig

ROLE_FIELDS = (
    "world_size",
    "device_mapping",
    "strategy_args",
    "model_args",
    "training_args",
    "generating_args",
    "data_args",
    "infer_batch_size",
)
"""What a first look at a role needs; `roll schema` and docs/configuration.md have the rest."""

HEADER = """\
# Everything here is optional and commented out, with its default, except what must be given.
# Check this file with `roll check FILE`, and run it with `roll run FILE`.
"""


def template(config_cls: type[BaseConfig], *, pipeline: str) -> str:
    """Returns the text of a commented YAML for one pipeline.

    Args:
        config_cls: the pipeline's configuration class.
        pipeline: the pipeline's name, as `pipeline_cls` in the YAML.
    """
    config = config_cls()
    required = {problem.path for problem in config.problems() if "." not in problem.path}
    lines = [HEADER, f"pipeline_cls: {pipeline}", ""]
    own = {entry.name for entry in dataclasses.fields(BaseConfig)}
    names = [entry.name for entry in dataclasses.fields(config_cls)]
    for name in sorted(names, key=lambda name: (name not in required, name in own)):
        lines += _field(config, name, required=name in required)
    return "\n".join(lines) + "\n"


def _field(config: BaseConfig, name: str, *, required: bool) -> Iterator[str]:
    value, text = getattr(config, name), field_texts(type(config)).get(name, "")
    if text:
        yield f"# {text}"
    if isinstance(value, WorkerConfig):
        extra = [e.name for e in dataclasses.fields(value) if e.name not in _PLAIN_FIELDS]
        yield from (f"# {line}" for line in _section(value, name, [*extra, *ROLE_FIELDS]))
    elif dataclasses.is_dataclass(value):
        yield from (
            f"# {line}" for line in _section(value, name, [e.name for e in dataclasses.fields(value)])
        )
    elif required:
        yield f"{name}: ???"
    else:
        yield f"# {name}: {_inline(value)}"
    yield ""


_PLAIN_FIELDS = {entry.name for entry in dataclasses.fields(WorkerConfig)}


def _section(value: Any, name: str, fields: list[str], depth: int = 0) -> Iterator[str]:  # Any: a dataclass
    yield "  " * depth + f"{name}:"
    texts, derived = field_texts(type(value)), set(getattr(value, "derived_fields", ()))
    for field in fields:
        inner = getattr(value, field)
        if dataclasses.is_dataclass(inner):
            yield from _section(inner, field, [e.name for e in dataclasses.fields(inner)], depth + 1)
            continue
        line = "  " * (depth + 1) + f"{field}: {_inline(None if field in derived else inner)}"
        yield f"{line:<56}  # {texts[field]}" if field in texts else line


def _inline(value: object) -> str:
    text = yaml.safe_dump(to_container(value), default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("...").strip()
