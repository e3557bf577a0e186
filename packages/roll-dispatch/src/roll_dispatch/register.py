"""Marking the methods of a worker that a cluster may call."""

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

from roll_dispatch.errors import RegisterError
from roll_dispatch.modes import Dispatch
from roll_dispatch.record import Record
from roll_dispatch.reducers import NAMES, Reducer
from roll_dispatch.rows import Empty

Method = TypeVar("Method", bound=Callable[..., Any])  # Any: the user's own signature, which stays as it is

_ROUTE = "__roll_route__"
_RESERVED = frozenset({"blocking"})
"""Parameters that the caller's side of a cluster takes for itself."""


class Execute(Enum):
    """Which ranks a registered method runs on."""

    ALL = "ALL"
    """Every rank that the mode sends something to."""
    RANK_ZERO = "RANK_ZERO"
    """Rank 0 alone, as if it were the only rank: it receives all rows and makes the result."""


class Route(Record):
    """What `register` records of a method."""

    dispatch_mode: Dispatch
    execute_mode: Execute = Execute.ALL
    clear_cache: bool = False
    """Whether the device's caches are freed after the call."""
    prefetch: bool = False
    """Whether the arguments are moved to the worker's device before the call."""
    timeout_s: float | None = None
    """Seconds after which a call fails; None leaves it to the cluster."""
    reducer: Reducer | None = None
    """Merges the outputs of the answering ranks; None joins them."""
    parameters: tuple[str, ...] = ()
    """Names of the positional parameters after self, for messages."""


def register(
    dispatch_mode: Dispatch | str = Dispatch.ALL_TO_ALL,
    *,
    execute_mode: Execute = Execute.ALL,
    clear_cache: bool = False,
    prefetch: bool = False,
    timeout_s: float | None = None,
    reducer: Reducer | None = None,
    pad: bool | None = None,
    empty: Empty | None = None,
) -> Callable[[Method], Method]:
    """Mark a method of a worker, sync, async or generator: how its calls travel. Changes nothing about it.

    Args:
        dispatch_mode: a mode or the name of one.
        execute_mode: all ranks, or rank 0 alone.
        clear_cache: free the device's caches after the call.
        prefetch: move the arguments to the worker's device before the call.
        timeout_s: seconds after which a call fails.
        reducer: "sum", "mean" (weighed by rows), "min", "max", "first", or a function of the list of outputs.
        pad, empty: as in `Dispatch.with_options`.

    Returns:
        A decorator that returns the method itself.

    Raises:
        RegisterError: for what is no mode or no function, or a parameter named as one that the caller's side
            takes.

    Example:
        >>> class Reward:
        ...     @register(Dispatch.DP_MP_COMPUTE)
        ...     def score(self, answers: list[str]) -> list[float]:
        ...         return [float(len(answer)) for answer in answers]
    """
    if not isinstance(dispatch_mode, (Dispatch, str)):
        raise RegisterError(
            f"dispatch_mode is a Dispatch, not {dispatch_mode!r}; write @register(Dispatch.DP_MP_COMPUTE)"
        )
    if not isinstance(execute_mode, Execute):
        raise RegisterError(f"execute_mode is Execute.ALL or Execute.RANK_ZERO, not {execute_mode!r}")
    if timeout_s is not None and not timeout_s > 0:
        raise RegisterError(f"timeout_s is a positive number of seconds or None, not {timeout_s!r}")
    if reducer is not None and not callable(reducer) and reducer not in NAMES:
        raise RegisterError(f"reducer is a function or one of {', '.join(NAMES)}, not {reducer!r}")
    route = Route(
        dispatch_mode=Dispatch.named(dispatch_mode).with_options(pad=pad, empty=empty),
        execute_mode=execute_mode,
        clear_cache=clear_cache,
        prefetch=prefetch,
        timeout_s=timeout_s,
        reducer=reducer,
    )

    def mark(method: Method) -> Method:
        setattr(method, _ROUTE, route.replace(parameters=_positional(method)))
        return method

    return mark


def registered_methods(cls: type) -> dict[str, Route]:
    """Return the registered methods of a class by name, inherited ones first.

    An override keeps the route of the method that it overrides, unless it is registered itself; a name that
    is overridden by something that is no function is registered no more.

    Raises:
        RegisterError: when a static or class method is registered, which has no worker to run on.
    """
    routes: dict[str, Route] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            route = getattr(getattr(value, "__func__", value), _ROUTE, None)
            if isinstance(value, (staticmethod, classmethod)) and isinstance(route, Route):
                raise RegisterError(
                    f"{cls.__name__}.{name} is a {type(value).__name__}, and only methods of a worker are "
                    "registered; give it self"
                )
            if isinstance(route, Route):
                routes[name] = route
            elif name in routes and not hasattr(value, "__code__"):
                del routes[name]
    return routes


def _positional(method: Callable[..., Any]) -> tuple[str, ...]:  # Any: the user's own signature
    code = getattr(method, "__code__", None)
    if code is None:
        raise RegisterError(
            f"only functions are registered, not {method!r}; put @register below other decorators"
        )
    count = code.co_argcount
    taken = _RESERVED.intersection(code.co_varnames[: count + code.co_kwonlyargcount])
    if taken:
        raise RegisterError(
            f"{method.__qualname__} has the parameter {', '.join(taken)}, which every call of a cluster "
            "takes for itself; rename it"
        )
    names: tuple[str, ...] = code.co_varnames[1:count]
    return names
