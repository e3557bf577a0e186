"""`roll config`: the merged configuration, each value with where it comes from."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from roll_pipelines.cli.exit_codes import ExitCode
from roll_pipelines.cli.modules import find_modules_beside
from roll_pipelines.cli.output import refuse, say
from roll_pipelines.config.container import to_container
from roll_pipelines.config.load import Loaded, load_config
from roll_pipelines.config.problems import ConfigError
from roll_pipelines.config.sources import Source

COLUMN = 60
"""Where the comments begin."""


def show_file(config: Path, overrides: Sequence[str], *, written_only: bool) -> ExitCode:
    """Prints a configuration as YAML, with the source of each value as a comment.

    Args:
        config: the YAML file.
        overrides: `key=value` in hydra's grammar.
        written_only: leave out what nobody wrote.
    """
    find_modules_beside(config)
    try:
        loaded = load_config(config, overrides)
    except ConfigError as refused:
        return refuse(refused)
    say("\n".join(annotated(loaded, written_only=written_only)))
    return ExitCode.DONE


def annotated(loaded: Loaded, *, written_only: bool = False) -> Iterator[str]:
    """Yields the lines of a configuration as YAML, each with a comment that says who set it.

    Args:
        loaded: the configuration.
        written_only: leave out what nobody wrote.
    """
    values = to_container(loaded.config)
    assert isinstance(values, dict), "a configuration is a mapping"
    launcher = {key: loaded.values[key] for key in ("pipeline_cls", "config_cls") if key in loaded.values}
    defaults = to_container(_blank(type(loaded.config)))
    lines = list(_lines({**launcher, **values}, defaults, "", loaded.sources))
    if written_only:
        lines = _without_empty_sections([line for line in lines if line[2] not in ("default", "derived")])
    for depth, text, comment in lines:
        line = "  " * depth + text
        yield f"{line:<{COLUMN}}  # {comment}" if comment else line


def _without_empty_sections(lines: list[tuple[int, str, str]]) -> list[tuple[int, str, str]]:
    kept: list[tuple[int, str, str]] = []
    for line in reversed(lines):
        if line[2] or (kept and kept[-1][0] > line[0]):
            kept.append(line)
    return kept[::-1]


def _blank(cls: type) -> object:
    try:
        return cls()
    except (TypeError, ValueError):
        return None  # a configuration with required fields has no defaults to compare with


def _lines(
    values: Mapping[str, object], defaults: object, path: str, sources: Mapping[str, Source]
) -> Iterator[tuple[int, str, str]]:
    depth = path.count(".") + 1 if path else 0
    for key, value in values.items():
        inner = f"{path}.{key}" if path else key
        default = defaults.get(key) if isinstance(defaults, dict) else None
        if isinstance(value, dict) and value:
            yield depth, f"{key}:", ""
            yield from _lines(value, default, inner, sources)
            continue
        text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True).strip()
        text = text.removesuffix("...").strip()
        comment = str(sources[inner]) if inner in sources else "default" if value == default else "derived"
        yield depth, f"{key}: {text}", comment
