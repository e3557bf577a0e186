"""Marking the methods of a worker that a cluster may call."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Literal, TypeVar

from roll_dispatch.errors import RegisterError
from roll_dispatch.modes import Dispatch
from roll_dispatch.record import Record

Method = TypeVar("Method", bound=Callable[..., Any])  # Any: the user's own signature, which stays as it is
Reducer = Callable[[Sequence[Any]], Any]  # Any: outputs and result of the user's own method

_ROUTE = "__roll_route__"
_RESERVED = frozenset({"blocking"})


class Execute(Enum):
    """Which ranks a registered method runs on."""

    ALL = "ALL"
    """Every rank that the mode sends something to."""
    RANK_ZERO = "RANK_ZERO"
    """Rank 0 alone, as if it were the only rank: it receives all rows."""


class Route(Record):
    """What `register` records about a method."""

    dispatch_mode: Dispatch
    execute_mode: Execute = Execute.ALL
    clear_cache: bool = True
    """Free the device's caches after the call."""
    prefetch: bool = False
    """Move the arguments to the worker's device before the call."""
    timeout_s: float | None = None
    """Seconds after which a call fails; None leaves it to the cluster."""
    reducer: Reducer | None = None
    """Merges the outputs of the answering ranks, in join order, into the result."""
    parameters: tuple[str, ...] = ()
    """Names of the positional parameters after self."""


def register(
    dispatch_mode: Dispatch = Dispatch.ALL_TO_ALL,
    *,
    execute_mode: Execute = Execute.ALL,
    clear_cache: bool = True,
    prefetch: bool = False,
    timeout_s: float | None = None,
    reducer: Reducer | None = None,
) -> Callable[[Method], Method]:
    """Mark a method of a worker: how its arguments travel. The method itself is returned as it was.

    Raises:
        RegisterError: when the mode is none, or the method has a parameter that the caller's side reserves.
    """
    if not isinstance(dispatch_mode, Dispatch):
        raise RegisterError(
            f"dispatch_mode is a Dispatch, not {dispatch_mode!r}; write @register(Dispatch.DP_MP_COMPUTE)"
        )
    if not isinstance(execute_mode, Execute):
        raise RegisterError(f"execute_mode is Execute.ALL or Execute.RANK_ZERO, not {execute_mode!r}")

    def mark(method: Method) -> Method:
        code = getattr(method, "__code__", None)
        if code is None:
            raise RegisterError(
                f"only functions are registered, not {method!r}; put @register below other decorators"
            )
        parameters = code.co_varnames[: code.co_argcount]
        taken = _RESERVED & set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        if taken:
            raise RegisterError(
                f"{method.__qualname__} has a parameter {sorted(taken)}, which the caller of a cluster uses; rename it"
            )
        route = Route(
            dispatch_mode=dispatch_mode,
            execute_mode=execute_mode,
            clear_cache=clear_cache,
            prefetch=prefetch,
            timeout_s=timeout_s,
            reducer=reducer,
            parameters=parameters[1:],
        )
        setattr(method, _ROUTE, route)
        return method

    return mark


def registered_methods(cls: type) -> dict[str, Route]:
    """Return the registered methods of a class by name. An override keeps the route unless it has its own."""
    routes: dict[str, Route] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            route = getattr(value, _ROUTE, None)
            if isinstance(route, Route):
                routes[name] = route
            elif name in routes and not hasattr(value, "__code__"):
                del routes[name]
    return routes
