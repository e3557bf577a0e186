"""What can go wrong when a cluster is built, bound and called. Every error pickles and keeps its fields."""

from dataclasses import dataclass, replace
from typing import Any


class ExecutorError(Exception):
    """Root of every error that roll_executor raises."""


class BindingError(ExecutorError, TypeError):
    """A class cannot be bound to a cluster, or a call does not fit the method's signature."""


class WorkerClassError(ExecutorError, ValueError):
    """What was given as a worker class is none, or cannot be imported."""


class ConfigError(ExecutorError, ValueError):
    """A field of a WorkerConfig, or a setting of a transfer backend, has an impossible value."""


class TransferError(ExecutorError, RuntimeError):
    """A transfer backend cannot store or fetch a payload."""


class ClusterClosedError(ExecutorError, RuntimeError):
    """A cluster was called after it had been closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Which worker an error is about."""

    cluster: str
    rank: int
    method: str = ""
    node: str = ""
    pid: int = 0

    def __str__(self) -> str:
        place = f"{self.cluster}-{self.rank}"
        method = f".{self.method}" if self.method else ""
        home = f" (node {self.node}, pid {self.pid})" if self.node or self.pid else ""
        return f"{place}{method}{home}"


class WorkerError(ExecutorError, RuntimeError):
    """A worker failed; the fields say which one, doing what, and what it said.

    Args:
        message: what happened and what to do, in one string.
        where: the worker.
        remote_traceback: the worker's traceback, empty when it could not leave one.
        original: the exception of the worker, when it can be pickled.
    """

    def __init__(
        self,
        message: str,
        *,
        where: Where,
        remote_traceback: str = "",
        original: BaseException | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.where = where
        self.remote_traceback = remote_traceback
        self.original = original
        self.notes = notes

    @property
    def cluster(self) -> str:
        """Name of the cluster."""
        return self.where.cluster

    @property
    def rank(self) -> int:
        """Global rank of the worker in its cluster."""
        return self.where.rank

    @property
    def node(self) -> str:
        """Address of the worker's node."""
        return self.where.node

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self.where.pid

    @property
    def method(self) -> str:
        """The method that was called."""
        return self.where.method

    def with_notes(self, *notes: str) -> "WorkerError":
        """Return the same error with what became of the other ranks."""
        fields = self._fields()
        fields["notes"] = (*self.notes, *notes)
        return type(self)(self.message, **fields)

    @property
    def message(self) -> str:
        """The first part of the text, without traceback and notes."""
        return str(self.args[0])

    def _fields(self) -> dict[str, Any]:  # Any: keyword arguments of the constructor
        return {
            "where": self.where,
            "remote_traceback": self.remote_traceback,
            "original": self.original,
            "notes": self.notes,
        }

    def __str__(self) -> str:
        parts = [self.message, *self.notes]
        if self.remote_traceback:
            parts.append(f"Traceback of {self.where}:\n{self.remote_traceback.rstrip()}")
        return "\n".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:  # Any: what the pickle protocol asks for
        return _rebuild, (type(self), self.message, self._fields())


def _rebuild(
    kind: type[WorkerError], message: str, fields: dict[str, Any]
) -> WorkerError:  # Any: see _fields
    return kind(message, **fields)


class WorkerRaisedError(WorkerError):
    """A method of a worker raised an exception."""


class WorkerStartError(WorkerError):
    """A worker could not be started, or its constructor raised."""


class WorkerDiedError(WorkerError):
    """A worker's process ended, was killed, or its node went away."""


class WorkerColdError(WorkerError):
    """A worker was restarted and lacks the state that a call needs."""


class CallTimeoutError(WorkerError, TimeoutError):
    """A call was not answered by all ranks before its deadline."""


def at(where: Where, **changes: Any) -> Where:  # Any: fields of Where
    """Return a place with some fields filled in."""
    return replace(where, **changes)
