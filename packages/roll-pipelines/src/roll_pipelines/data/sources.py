"""Rows of any form from files and data sets, each with the place it stands at."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl

from roll_pipelines.data.json_list import JsonList, JsonListError

DATASETS_SCHEME = "datasets:"
ENCODING = "utf-8-sig"
"""UTF-8, whether or not the file begins with a byte order mark, as tables from spreadsheets do."""
SHOWN = 10
"""Bad rows that one error lists."""

Row = TypeVar("Row")


class DataError(ValueError):
    """Rows cannot be read; the message names the file and the line of each."""


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row as it was read."""

    values: Mapping[str, object]
    """The columns by name."""
    place: str
    """Where it stands, as an editor understands it: `file.jsonl:12`, or a file and a row number."""

    def text(self, column: str) -> str:
        """Returns a column that must hold a text.

        Raises:
            DataError: it does not.
        """
        value = self.values.get(column)
        if not isinstance(value, str):
            raise DataError(
                f"{self.place}: column {column!r} must be a text, got {value!r:.80}; the row has the columns "
                f"{', '.join(map(str, self.values)) or '(none)'}"
            )
        return value


def read_source(name: str) -> list[SourceRow]:
    """Returns the rows of one source, in its order.

    Args:
        name: a file ending in `.jsonl`, `.json` (a list of objects), `.csv` or `.parquet`; a directory that
            `datasets` saved; or `datasets:NAME?split=train&name=CONFIG`, which is loaded with
            `datasets.load_dataset(NAME, split=..., name=..., ...)`.

    Raises:
        DataError: there is no such file, it has another form, or a row is not an object with columns.
    """
    if name.startswith(DATASETS_SCHEME):
        return list(_of_datasets(name))
    path = Path(name)
    if path.is_dir():
        return list(_saved(path))
    if not path.is_file():
        raise DataError(f"{path}: there is no such file; for a data set of a hub write {DATASETS_SCHEME}NAME")
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise DataError(f"{path}: rows are read from {', '.join(_READERS)}, not from {path.suffix!r}")
    try:
        return _parsed_rows(reader(path))
    except UnicodeDecodeError as broken:
        raise DataError(f"{path}: is not UTF-8 at byte {broken.start}; convert it") from broken


def read_rows_as(names: str | Sequence[str], parse: Callable[[SourceRow], Row]) -> list[list[Row]]:
    """Returns the rows of several sources, one list a source, in the form that a pipeline needs.

    Args:
        names: one source or several.
        parse: makes one row; it raises DataError for a row that it cannot use.

    Raises:
        DataError: rows cannot be used, and the first ten are listed with their places; or a source is empty.
    """
    parsed: list[list[Row]] = []
    for name in [names] if isinstance(names, str) else names:
        rows = read_source(name)
        if not rows:
            raise DataError(f"{name}: has no rows; take it out or fill it")
        parsed.append(_all(rows, parse))
    return parsed


def _all(rows: Sequence[SourceRow], parse: Callable[[SourceRow], Row]) -> list[Row]:
    good: list[Row] = []
    bad: list[str] = []
    for row in rows:
        try:
            good.append(parse(row))
        except DataError as wrong:
            bad.append(str(wrong))
    _refuse(bad)
    return good


def _refuse(bad: Sequence[str]) -> None:
    if bad:
        more = f"\n... and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
        raise DataError("\n".join(bad[:SHOWN]) + more)


def _parsed_rows(found: Iterator[tuple[str, object]]) -> list[SourceRow]:
    rows: list[SourceRow] = []
    bad: list[str] = []
    for place, value in found:
        if isinstance(value, _Broken):
            bad.append(f"{place}: {value.why}")
        elif isinstance(value, Mapping):
            rows.append(SourceRow(value, place))
        else:
            bad.append(f"{place}: a row must be an object with columns, not {value!r:.80}")
    _refuse(bad)
    return rows


@dataclass(frozen=True, slots=True)
class _Broken:
    why: str


def _jsonl(path: Path) -> Iterator[tuple[str, object]]:
    with path.open(encoding=ENCODING) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield f"{path}:{number}", json.loads(line)
            except json.JSONDecodeError as broken:
                yield f"{path}:{number}", _Broken(f"is no JSON: {broken.msg} at column {broken.colno}")


def _json(path: Path) -> Iterator[tuple[str, object]]:
    try:
        for line, value in JsonList(path.read_text(encoding=ENCODING)).entries():
            yield f"{path}:{line}", value
    except JsonListError as broken:
        raise DataError(f"{path}:{broken.line}: is no JSON: {broken.why}") from broken


def _csv(path: Path) -> Iterator[tuple[str, object]]:
    with path.open(encoding=ENCODING, newline="") as lines, _cells_of_any_size():
        reader = csv.DictReader(lines, strict=True)
        columns, last = reader.fieldnames or [], reader.line_num
        while True:
            try:
                row = next(reader, None)
            except csv.Error as broken:
                raise DataError(f"{path}:{last + 1}: is no CSV: {broken}") from broken
            if row is None:
                return
            place, last = f"{path}:{last + 1}", reader.line_num
            count = len(columns) + len(row.get(None) or ()) - sum(value is None for value in row.values())
            if count != len(columns):
                yield place, _Broken(f"has {count} cells, but the header names {len(columns)} columns")
            else:
                yield place, row


@contextmanager
def _cells_of_any_size() -> Iterator[None]:
    """Lifts the limit that the csv module sets for the whole process, and puts it back."""
    before = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _parquet(path: Path) -> Iterator[tuple[str, object]]:
    import pyarrow  # type: ignore[import-untyped]  # ships no types
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except pyarrow.ArrowInvalid as broken:
        raise DataError(f"{path}: is no Parquet file: {broken}") from broken
    yield from ((f"{path}: row {number}", row) for number, row in enumerate(table.to_pylist()))


_READERS: dict[str, Callable[[Path], Iterator[tuple[str, object]]]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}


def _of_datasets(name: str) -> Iterator[SourceRow]:
    import datasets  # type: ignore[import-untyped]  # ships no types

    path, _, query = name.removeprefix(DATASETS_SCHEME).partition("?")
    options: dict[str, str] = dict(parse_qsl(query))
    try:
        loaded = datasets.load_dataset(path, **{"split": "train", **options})
    except (ValueError, TypeError, OSError, datasets.exceptions.DatasetsError) as refused:
        raise DataError(f"{name}: datasets.load_dataset refuses it: {refused}") from refused
    yield from _rows_of(loaded, name)


def _saved(path: Path) -> Iterator[SourceRow]:
    import datasets

    try:
        loaded = datasets.load_from_disk(str(path))
    except FileNotFoundError as missing:
        raise DataError(
            f"{path}: is a directory that `datasets` did not save; name a file in it"
        ) from missing
    yield from _rows_of(loaded, str(path))


def _rows_of(loaded: object, name: str) -> Iterator[SourceRow]:
    import datasets

    if isinstance(loaded, Mapping):
        raise DataError(f"{name}: has several splits, {', '.join(map(str, loaded))}; add ?split=NAME")
    if not isinstance(loaded, datasets.Dataset):
        raise DataError(f"{name}: is a stream, and rows are read and checked whole; take streaming out")
    yield from (SourceRow(row, f"{name}: row {number}") for number, row in enumerate(loaded))
