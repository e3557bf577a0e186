"""Errors of this package: each says the thing, the rule, the value and the way out, and survives pickling."""


class ProtocolError(Exception):
    """Something about a batch is wrong; the root of every error that this package raises."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ColumnError(ProtocolError, ValueError):
    """A column cannot be part of the batch: wrong number of rows, wrong type, or a name that is taken."""


class ColumnNotFoundError(ProtocolError, KeyError):
    """No column, or no meta entry, has the name that was asked for."""

    __str__ = ProtocolError.__str__  # KeyError would quote the whole sentence


class RowIndexError(ProtocolError, IndexError):
    """A row index points outside the batch, or a mask has another length than the batch."""


class RowMismatchError(ProtocolError, ValueError):
    """Two batches that should describe the same rows do not."""


class ConflictError(ProtocolError, ValueError):
    """Two batches hold different values under one name."""


class MetricError(ProtocolError, ValueError):
    """A metric cannot be reduced the way its name or its declaration says."""


class SchemaError(ProtocolError, ValueError):
    """A batch does not have the columns that a schema asks for."""


class StorageError(ProtocolError, ValueError):
    """A file cannot be written or read back safely and whole."""


class UnresolvedReferenceError(ProtocolError, TypeError):
    """Nothing that is installed knows how to fetch the value behind a reference."""
