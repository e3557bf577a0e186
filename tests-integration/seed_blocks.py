"""Takes the code blocks out of the seed guide, which has no fences around them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SEED_FOLDER = Path(__file__).resolve().parents[2] / "shared" / "seed"
"""Where the guide stands beside the repository; it is no part of it."""

PYTHON_START = re.compile(
    r"(from \S+ import |import \w+$|class \w+\(|@dataclass|# \w|self\.|ray\.get\(|[\w.]+ = |if self\.)"
)
YAML_START = re.compile(r"[a-z_]+:( \S+)?$")
FORMULA = re.compile(r"(num_gpus_per_worker|world_size) = ")
CALL_LIST = re.compile(r"[a-z_]+\([\w., ]*\)$")


@dataclass(frozen=True)
class Block:
    """One block of code of the guide, as printed."""

    kind: str
    """`python`, `yaml`, `formula`, or `names` for a list of methods."""
    text: str

    @property
    def first(self) -> str:
        """The first line."""
        return self.text.partition("\n")[0]


def seed_text() -> str:
    """Returns the whole guide."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(SEED_FOLDER.glob("*.txt")))


def blocks(text: str) -> Iterator[Block]:
    """Yields the blocks in their order: one begins at a line that only code has, and ends before prose."""
    lines = text.splitlines()
    index = 0
    while index < len(lines):
        kind = _kind(lines[index])
        if kind is None:
            index += 1
            continue
        end = index
        while end < len(lines) and (not lines[end].strip() or _goes_on(lines[end], kind)):
            end += 1
        yield Block(kind, "\n".join(lines[index:end]).rstrip())
        index = end


def _kind(line: str) -> str | None:
    if FORMULA.match(line):
        return "formula"
    if PYTHON_START.match(line):
        return "python"
    if CALL_LIST.match(line):
        return "names"
    return "yaml" if YAML_START.match(line) else None


def _goes_on(line: str, kind: str) -> bool:
    if line.startswith("  "):
        return True
    if kind == "python":
        closing = line[0] in ")]}" or line.startswith(("elif ", "else:"))
        return closing or PYTHON_START.match(line) is not None
    return _kind(line) == kind
