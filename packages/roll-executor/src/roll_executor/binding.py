"""Which methods of a worker class a cluster offers, checked when the class is bound."""

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from roll_dispatch import Route, registered_methods
from roll_executor.errors import BindingError, WorkerClassError

RESERVED_PARAMETERS = ("blocking", "timeout_s")
Kind = Literal["plain", "async", "generator"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One method that a cluster offers."""

    name: str
    route: Route
    signature: inspect.Signature
    kind: Kind
    doc: str
    takes: range
    """How many arguments by position make a call that needs no closer look: there are no others to give."""

    def check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, cluster: str) -> None:
        """Raise when a call does not fit the signature, before anything is sent.

        Raises:
            BindingError: naming the method and its signature.
        """
        if not kwargs and len(args) in self.takes:
            return
        try:
            self.signature.bind(None, *args, **kwargs)
        except TypeError as error:
            shown = ", ".join(list(map(str, self.signature.parameters.values()))[1:])
            raise BindingError(
                f"{cluster}.{self.name}({shown}): {error}; beside these it takes blocking= and timeout_s="
            ) from None


def bind(cls: type, *, taken: frozenset[str]) -> dict[str, Bound]:
    """Return the registered methods of a class by name.

    Args:
        cls: the worker class.
        taken: names that a cluster uses itself.

    Raises:
        BindingError: naming every method that cannot be offered, with the reason.
    """
    problems = []
    bound = {}
    for name, route in registered_methods(cls).items():
        method = getattr(cls, name)
        signature = inspect.signature(method)
        if name in taken:
            problems.append(f"{name!r} is an attribute of every Cluster; rename the method")
        reserved = [parameter for parameter in RESERVED_PARAMETERS if parameter in signature.parameters]
        if reserved:
            problems.append(
                f"{name!r} has the parameter {reserved[0]!r}, which every call of a Cluster takes; rename it"
            )
        bound[name] = Bound(
            name=name,
            route=route,
            signature=signature,
            kind=_kind(method),
            doc=inspect.getdoc(method) or "",
            takes=_takes(signature),
        )
    if problems:
        raise BindingError(f"{cls.__qualname__} cannot be bound to a Cluster: " + "; ".join(problems))
    return bound


def _takes(signature: inspect.Signature) -> range:
    """Return how many arguments by position, without the worker, a call may have that names none."""
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    own = list(signature.parameters.values())[1:]
    by_position = [parameter for parameter in own if parameter.kind in plain]
    needed = sum(parameter.default is parameter.empty for parameter in by_position)
    others = [parameter for parameter in own if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    if any(parameter.default is parameter.empty for parameter in others):
        return range(0)
    return range(needed, len(by_position) + 1)


def _kind(method: object) -> Kind:
    if inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
        return "generator"
    return "async" if inspect.iscoroutinefunction(method) else "plain"


def has_async_methods(cls: type) -> bool:
    """Return whether any public method of a class is a coroutine function or an async generator."""
    return any(
        inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
        for name, member in inspect.getmembers(cls, callable)
        if not name.startswith("_")
    )


def find_class(candidate: object) -> type:
    """Return the worker class that a class, a Ray actor class or a dotted path names.

    Raises:
        WorkerClassError: if it names none.
    """
    if isinstance(candidate, str):
        candidate = _import(candidate)
    if any(base.__module__.partition(".")[0] == "ray" for base in type(candidate).__mro__):
        from roll_executor.on_ray import plain_class

        candidate = plain_class(candidate) or candidate
    if not isinstance(candidate, type):
        raise WorkerClassError(
            f"worker_cls is {candidate!r}; give a class, a Ray actor class or a dotted path such as "
            "'my_package.workers.MyWorker'"
        )
    return candidate


def _import(path: str) -> object:
    module, _, name = path.replace(":", ".").rpartition(".")
    if not module:
        raise WorkerClassError(
            f"worker_cls is {path!r}; give a dotted path such as 'my_package.workers.MyWorker'"
        )
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        raise WorkerClassError(
            f"worker_cls {path!r}: module {module!r} cannot be imported ({error}); is it installed, "
            "and on PYTHONPATH?"
        ) from error
    try:
        return getattr(loaded, name)
    except AttributeError:
        classes = [key for key, value in vars(loaded).items() if isinstance(value, type)]
        raise WorkerClassError(
            f"worker_cls {path!r}: module {module!r} has no {name!r}; its classes are {sorted(classes)}"
        ) from None
