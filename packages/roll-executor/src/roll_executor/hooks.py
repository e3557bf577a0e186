"""Call hooks: what other packages do in the worker around a call, found by entry point."""

import functools
import logging
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any

logger = logging.getLogger(__name__)

GROUP = "roll.call_hooks"
Args = tuple[Any, ...]  # Any: arguments of the user's own method
Kwargs = dict[str, Any]  # Any: as above


@functools.cache
def installed_hooks() -> tuple[object, ...]:
    """Return the hooks of every installed package, in order of their names."""
    found = sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))
    return tuple(_instance(entry.load()) for entry in found)


def _instance(loaded: object) -> object:
    return loaded() if isinstance(loaded, type) else loaded


class Hooks:
    """Several hooks as one; a hook has those methods that it cares for.

    Args:
        hooks: objects with any of ``start_worker``, ``before_call``, ``after_call``, ``abort``,
            ``random_state`` and ``set_random_state``; None: those that are installed.
    """

    def __init__(self, hooks: Sequence[object] | None = None) -> None:
        chosen = installed_hooks() if hooks is None else tuple(hooks)
        self._start = _methods(chosen, "start_worker")
        self._before = _methods(chosen, "before_call")
        self._after = _methods(chosen, "after_call")
        self._abort = _methods(chosen, "abort")
        self._random_state = _methods(chosen, "random_state")
        self._set_random_state = _methods(chosen, "set_random_state")

    def start_worker(self, worker: object) -> None:
        """Tell every hook that a worker has been built."""
        for hook in self._start:
            hook(worker)

    def before_call(
        self, worker: object, *, method: str, prefetch: bool, args: Args, kwargs: Kwargs
    ) -> tuple[Args, Kwargs]:
        """Return the arguments with which the method is called."""
        for hook in self._before:
            args, kwargs = hook(worker, method, prefetch, args, kwargs)
        return args, kwargs

    def after_call(self, worker: object, *, method: str, clear_cache: bool) -> None:
        """Tell every hook, last one first, that a method has ended."""
        for hook in reversed(self._after):
            hook(worker, method, clear_cache)

    def abort(self, worker: object) -> list[str]:
        """Tell every hook that a peer has failed; return what went wrong doing so."""
        problems = []
        for hook in self._abort:
            try:
                hook(worker)
            except Exception as error:  # noqa: BLE001  # one hook's failure must not keep the others from releasing
                problems.append(f"{type(error).__name__}: {error}")
        return problems

    def random_state(self) -> list[object]:
        """Return the random state as each hook tells it."""
        return [hook() for hook in self._random_state]

    def set_random_state(self, states: Sequence[object]) -> None:
        """Set what ``random_state`` returned."""
        for hook, state in zip(self._set_random_state, states, strict=True):
            hook(state)


def _methods(hooks: Sequence[object], name: str) -> list[Any]:  # Any: each hook's own signature
    return [method for hook in hooks if (method := getattr(hook, name, None)) is not None]
