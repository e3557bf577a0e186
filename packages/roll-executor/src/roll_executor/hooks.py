"""Call hooks: what other packages do in the worker around a call, found by entry point."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any

GROUP = "roll.call_hooks"
Args = tuple[Any, ...]  # Any: arguments of the user's own method
Kwargs = dict[str, Any]  # Any: as above


class Hooks:
    """Several hooks as one; a hook has those methods that it cares for.

    An installed hook is loaded once the worker's process has imported the package that supplies it, so that a
    rule worker need not wait for torch. It sees every call from then on.

    Args:
        hooks: objects with any of ``start_worker``, ``sharing_process``, ``before_call``, ``after_call``,
            ``abort``, ``end_worker``, ``random_state``, ``set_random_state``; None: those that are installed.
    """

    def __init__(self, hooks: Sequence[object] | None = None) -> None:
        self._hooks = list(hooks or ())
        self._installed: list[tuple[str, EntryPoint]] = []
        if hooks is None:
            found = sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))
            self._installed = [(entry.module.partition(".")[0], entry) for entry in found]
        self._worker: object = None

    def start_worker(self, worker: object) -> None:
        """Tell every hook that a worker has been built."""
        self._load()
        self._worker = worker
        for hook in self._having("start_worker"):
            hook(worker)

    @contextmanager
    def sharing_process(self, worker: object, *, beside_others: bool) -> Iterator[None]:
        """Enter what every hook does around a call in a process that several workers share."""
        self._load()
        with ExitStack() as stack:
            for hook in self._having("sharing_process"):
                stack.enter_context(hook(worker, beside_others))
            yield

    def before_call(
        self, worker: object, *, method: str, prefetch: bool, args: Args, kwargs: Kwargs
    ) -> tuple[Args, Kwargs]:
        """Return the arguments with which the method is called."""
        self._load()
        for hook in self._having("before_call"):
            args, kwargs = hook(worker, method, prefetch, args, kwargs)
        return args, kwargs

    def after_call(self, worker: object, *, method: str, clear_cache: bool) -> None:
        """Tell every hook, last one first, that a method has ended."""
        self._load()
        for hook in reversed(self._having("after_call")):
            hook(worker, method, clear_cache)

    def abort(self, worker: object) -> list[str]:
        """Tell every hook that a peer has failed; return what went wrong doing so."""
        return self._tell("abort", worker)

    def end_worker(self, worker: object) -> list[str]:
        """Tell every hook that the worker is about to be ended; return what went wrong doing so."""
        return self._tell("end_worker", worker)

    def _tell(self, name: str, worker: object) -> list[str]:
        problems = []
        for hook in self._having(name):
            try:
                hook(worker)
            except Exception as error:  # noqa: BLE001  # one hook's failure must not keep the others from theirs
                problems.append(f"{type(error).__name__}: {error}")
        return problems

    def random_state(self) -> list[object]:
        """Return the random state as each hook tells it."""
        return [hook() for hook in self._having("random_state")]

    def set_random_state(self, states: Sequence[object]) -> None:
        """Set what ``random_state`` returned."""
        for hook, state in zip(self._having("set_random_state"), states, strict=True):
            hook(state)

    def _load(self) -> None:
        if not self._installed:
            return
        ready = [(package, entry) for package, entry in self._installed if package in sys.modules]
        for package, entry in ready:
            self._installed.remove((package, entry))
            loaded = entry.load()
            hook = loaded() if isinstance(loaded, type) else loaded
            self._hooks.append(hook)
            if self._worker is not None and hasattr(hook, "start_worker"):
                hook.start_worker(self._worker)

    def _having(self, name: str) -> list[Any]:  # Any: each hook's own signature
        return [method for hook in self._hooks if (method := getattr(hook, name, None)) is not None]
