"""Where each value of a composed configuration was written: file and line, or the command line."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True)
class Source:
    """The place that set a value last."""

    file: str
    """A file's path, or `command line`."""
    line: int | None = None
    """The line in the file, counted from 1."""

    def __str__(self) -> str:
        """Returns `file:line`."""
        return f"{self.file}:{self.line}" if self.line else self.file


def lines_of(text: str, *, package: str = "") -> dict[str, int]:
    """Returns the line of every key and list entry in a YAML text.

    Args:
        text: the text of one YAML file.
        package: the path under which the file's keys stand in the whole configuration.

    Example:
        >>> lines_of("a:\\n  b: [1, 2]\\n")
        {'a': 1, 'a.b': 2, 'a.b[0]': 2, 'a.b[1]': 2}
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return dict(_walk(root, package)) if root is not None else {}


def _walk(node: yaml.Node, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = f"{path}.{key.value}" if path else str(key.value)
            yield inner, key.start_mark.line + 1
            yield from _walk(value, inner)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            inner = f"{path}[{index}]"
            yield inner, value.start_mark.line + 1
            yield from _walk(value, inner)


def read_sources(files: list[tuple[Path, str]], override_paths: list[str]) -> dict[str, Source]:
    """Returns the source of every path, later files before earlier ones and the command line before all.

    Args:
        files: the composed files with the package of each, in the order in which they are merged.
        override_paths: the paths that the command line set.
    """
    found: dict[str, Source] = {}
    for path, package in files:
        for key, line in lines_of(path.read_text(encoding="utf-8"), package=package).items():
            if key != "defaults" and not key.startswith("defaults["):
                found[key] = Source(shown(path), line)
    found.update({path: Source(COMMAND_LINE) for path in override_paths})
    return found


def shown(path: Path) -> str:
    """Returns a path as a reader wants it: relative to the current directory when it lies inside."""
    inside = path.is_absolute() and path.is_relative_to(Path.cwd())
    return str(path.relative_to(Path.cwd()) if inside else path)


def source_of(path: str, sources: Mapping[str, Source]) -> Source | None:
    """Returns the source of a path, or of the nearest section around it that was written.

    Args:
        path: a path such as `actor_train.device_mapping[3]`.
        sources: what `read_sources` returned.
    """
    while path:
        if path in sources:
            return sources[path]
        cut = max(path.rfind("."), path.rfind("["))
        path = path[:cut] if cut > 0 else ""
    return None
