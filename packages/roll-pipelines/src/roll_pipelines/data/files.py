"""Rows with a prompt and a response in files: JSONL, JSON, CSV and Parquet."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from roll_pipelines.data.supervised import SupervisedRow


def read_rows(files: str | Sequence[str], *, prompt: str, response: str) -> list[SupervisedRow]:
    """Returns the rows of files, in the order of the files and of their rows.

    Args:
        files: one path or several, ending in `.jsonl`, `.json` (a list), `.csv` or `.parquet`.
        prompt: name of the column with the prompt.
        response: name of the column with the answer.

    Raises:
        ValueError: a file has another form, or a row lacks a text; the message names the file and the row.
    """
    rows: list[SupervisedRow] = []
    for name in [files] if isinstance(files, str) else files:
        for place, row in _read(Path(name)):
            rows.append(SupervisedRow(_text(row, prompt, place), _text(row, response, place)))
    return rows


def _text(row: object, column: str, place: str) -> str:
    if not isinstance(row, Mapping):
        raise ValueError(f"{place}: a row must be an object with columns, not {row!r:.80}")
    value = row.get(column)
    if not isinstance(value, str):
        raise ValueError(
            f"{place}: column {column!r} must be a text, got {value!r:.80}; "
            f"the row has {', '.join(map(str, row))}"
        )
    return value


def _read(path: Path) -> Iterator[tuple[str, object]]:
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    if path.suffix not in READERS:
        raise ValueError(f"{path}: rows are read from {', '.join(READERS)}, not from {path.suffix!r}")
    yield from READERS[path.suffix](path)


def _jsonl(path: Path) -> Iterator[tuple[str, object]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield f"{path}:{number}", _parsed(line, f"{path}:{number}")


def _json(path: Path) -> Iterator[tuple[str, object]]:
    content = _parsed(path.read_text(encoding="utf-8"), str(path))
    if not isinstance(content, list):
        raise ValueError(f"{path}: must hold a list of rows; for one row a line use .jsonl")
    yield from ((f"{path}: row {number}", row) for number, row in enumerate(content))


def _csv(path: Path) -> Iterator[tuple[str, object]]:
    with path.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        for row in reader:
            yield f"{path}:{reader.line_num}", row


def _parquet(path: Path) -> Iterator[tuple[str, object]]:
    import pyarrow.parquet as parquet  # type: ignore[import-untyped]  # ships no types

    for number, row in enumerate(parquet.read_table(path).to_pylist()):
        yield f"{path}: row {number}", row


READERS: dict[str, Callable[[Path], Iterator[tuple[str, object]]]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}
"""How a file is read, by the ending of its name; yields each row with the place that errors name."""


def _parsed(text: str, place: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as broken:
        raise ValueError(f"{place}: is no JSON: {broken}") from broken
