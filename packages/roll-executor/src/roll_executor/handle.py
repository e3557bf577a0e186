"""One worker of a cluster, called alone."""

from collections.abc import Callable
from typing import Any

Submit = Callable[[int, str, tuple[Any, ...], dict[str, Any]], Any]  # Any: the user's own method; a reference


class WorkerHandle:
    """One worker of a cluster: ``handle.method.remote(...)`` calls it alone and returns a reference."""

    def __init__(self, rank: int, submit: Submit) -> None:
        self.rank = rank
        self._submit = submit

    def __getattr__(self, name: str) -> "RemoteMethod":
        return RemoteMethod(self.rank, public(name), self._submit)


class RemoteMethod:
    """One method of one worker."""

    def __init__(self, rank: int, name: str, submit: Submit) -> None:
        self._rank = rank
        self._name = name
        self._submit = submit

    def remote(self, *args: Any, **kwargs: Any) -> Any:  # Any: the user's own method; a reference
        """Send the call; return the reference of its result."""
        return self._submit(self._rank, self._name, args, kwargs)


def public(name: str) -> str:
    """Return the name of a method that may be called from outside.

    Raises:
        AttributeError: if it starts with an underscore.
    """
    if name.startswith("_"):
        raise AttributeError(f"{name!r} is not a public method of a worker")
    return name
