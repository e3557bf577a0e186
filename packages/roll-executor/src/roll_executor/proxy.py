"""A registered method of a worker as a method of its cluster."""

from collections.abc import Callable
from typing import Any

from roll_executor.binding import Bound

Call = Callable[..., Any]  # Any: the user's own signature


def proxy(cluster: str, bound: Bound, call: Call) -> Call:
    """Return what stands on a cluster for a registered method.

    Args:
        cluster: its name.
        bound: the method.
        call: takes the method's name, its arguments, ``blocking`` and ``timeout_s``.
    """

    def method(
        *args: Any,
        blocking: bool = True,
        timeout_s: float | None = None,
        **kwargs: Any,
    ) -> Any:  # Any: the user's own signature
        return call(bound.name, args, kwargs, blocking=blocking, timeout_s=timeout_s)

    method.__name__ = bound.name
    method.__qualname__ = f"{cluster}.{bound.name}"
    method.__doc__ = bound.doc
    return method
