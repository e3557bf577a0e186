"""Fetching the values behind references, through whoever knows how."""

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import TypeAlias

from roll_protocol.errors import UnresolvedReferenceError

Resolver: TypeAlias = Callable[..., list[object]]
"""``resolve(refs, *, timeout_s) -> values``, in the order of the references."""

GROUP = "roll.refs"
_REGISTERED: dict[str, Resolver] = {}


def register_ref_resolver(module: str, resolve: Resolver) -> None:
    """Say how references are resolved whose type comes from a top-level module.

    Args:
        module: For example ``"ray"``. An installed package says the same with an entry point of the group
            ``roll.refs``.
        resolve: Called with the references and ``timeout_s``; returns their values in the same order.
    """
    _REGISTERED[module] = resolve


def _module(ref: object) -> str:
    return type(ref).__module__.partition(".")[0]


def _resolver(ref: object) -> Resolver:
    module = _module(ref)
    if module in _REGISTERED:
        return _REGISTERED[module]
    for point in entry_points(group=GROUP):
        if point.name == module:
            resolve: Resolver = point.load()
            return _REGISTERED.setdefault(module, resolve)
    known = sorted({*_REGISTERED, *(point.name for point in entry_points(group=GROUP))})
    raise UnresolvedReferenceError(
        f"nothing installed resolves a {type(ref).__module__}.{type(ref).__qualname__}; resolvers are "
        f"there for {known}. "
        "Install the package that makes these references (for Ray: pip install 'roll-executor[ray]'), "
        f"or call register_ref_resolver({module!r}, ...)"
    )


def resolve_refs(
    refs: Sequence[object], *, is_value: Callable[[object], bool], timeout_s: float | None
) -> list[object]:
    """Return the value of each reference, in order, asking each resolver once.

    Args:
        refs: References, and values for which ``is_value`` holds and which stand for themselves.
        is_value: Tells a value from a reference.
        timeout_s: How long to wait, or None for as long as it takes.

    Raises:
        UnresolvedReferenceError: No resolver is there for a reference.
    """
    values: list[object] = list(refs)
    groups: dict[str, list[int]] = {}
    for place, ref in enumerate(refs):
        if not is_value(ref):
            groups.setdefault(_module(ref), []).append(place)
    for places in groups.values():
        resolve = _resolver(refs[places[0]])
        for place, value in zip(
            places, resolve([refs[place] for place in places], timeout_s=timeout_s), strict=True
        ):
            values[place] = value
    return values
