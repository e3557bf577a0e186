"""A transfer backend for roll in one file: payloads are rows of a SQLite database."""

import pickle
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any


class SqliteBackend:
    """Every payload that tells its bytes is a row; a process connects for each of them."""

    def __init__(self, settings: Mapping[str, object], *, session: str) -> None:
        file = settings.get("file")
        if not isinstance(file, str) or len(settings) > 1:
            raise ValueError(f"sqlite has one setting, file: the path of a database; not {dict(settings)}")
        self._file = f"{file}-{session}"

    def open(self) -> None:
        """Makes the table."""
        self._run("create table payloads (call text, value blob)")

    def put(self, value: object, *, call: str) -> object:
        """Returns the number of the payload's row."""
        if not isinstance(getattr(value, "nbytes", None), int):
            return value
        return self._run("insert into payloads values (?, ?) returning rowid", call, pickle.dumps(value))

    def get(self, reference: object) -> Any:  # Any: whatever was put
        """Returns a copy of the payload."""
        found = self._run("select value from payloads where rowid = ?", reference)
        assert isinstance(found, bytes), "the row is there until its call has ended"
        return pickle.loads(found)

    def delete(self, call: str) -> None:
        """Takes the rows of a call out."""
        self._run("delete from payloads where call = ?", call)

    def close(self) -> None:
        """Removes the database."""
        Path(self._file).unlink()

    def _run(self, statement: str, *values: object) -> object:
        with closing(sqlite3.connect(self._file, timeout=60)) as base, base:
            row = base.execute(statement, values).fetchone()
            return row[0] if row else None
