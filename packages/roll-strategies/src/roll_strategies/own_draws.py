"""Random draws of one worker, in a process whose generators several workers and the driver would share."""

import contextlib
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from roll_strategies.random_state import OWN, random_state, seed_draws, set_random_state

_SWAPPED = threading.Lock()
"""Held while the process's generator stands in for that of one thread's worker."""


class OwnDraws:
    """The generators of one worker. Its first state depends on the worker's name and the process's seed.

    A worker that has the thread of its caller gets its state put in place of the process's for the time of a
    call. Several that run at one time, a thread each, cannot all have the process's state: torch is handed
    the worker's own generator draw by draw, on the CPU; Python's and NumPy's global generators stay shared.
    """

    def __init__(self, worker_name: str) -> None:
        with _SWAPPED:
            seed = torch.initial_seed()
        self._seed, self._state = (seed + zlib.crc32(worker_name.encode())) % 2**63, None
        self._generator = torch.Generator().manual_seed(self._seed)

    _state: Mapping[str, Any] | None  # Any: see random_state

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Puts the worker's state in place of the process's, for a call in the caller's thread."""
        before = random_state()
        if self._state is None:
            seed_draws(self._seed)
        else:
            set_random_state(self._state)
        try:
            yield
        finally:
            self._state = random_state()
            set_random_state(before)

    @contextlib.contextmanager
    def beside_others(self) -> Iterator[None]:
        """Lets torch draw from the worker's generator in this thread, in a call beside those of peers."""
        token = OWN.set(self._generator)
        try:
            with _DrawFrom(self._generator):
                yield
        finally:
            OWN.reset(token)


class _DrawFrom(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Hands a generator to every operation of this thread that draws."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._generator = generator

    def __torch_dispatch__(
        self,
        func: Any,  # Any: an overload of an operator
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        given = dict(kwargs or {})
        draws = torch.Tag.nondeterministic_seeded in func.tags and given.get("generator") is None
        if not draws or _device(args, given) != "cpu":
            return func(*args, **given)
        seeded = _with_generator(func)
        if seeded is not None:
            return seeded(*args, **given, generator=self._generator)
        with _SWAPPED:
            before = torch.get_rng_state()
            torch.set_rng_state(self._generator.get_state())
            try:
                return func(*args, **given)
            finally:
                self._generator.set_state(torch.get_rng_state())
                torch.set_rng_state(before)


def _with_generator(func: Any) -> Callable[..., object] | None:  # Any: an overload of an operator
    """Returns the overload of an operator that takes the same arguments and a generator."""
    wanted = [argument.name for argument in func._schema.arguments if argument.name != "generator"]
    packet = func.overloadpacket
    for name in (func._overloadname, *packet.overloads()):
        overload = getattr(packet, name)
        names = [argument.name for argument in overload._schema.arguments]
        if "generator" in names and [name for name in names if name != "generator"] == wanted:
            return overload  # type: ignore[no-any-return]  # torch leaves operators untyped
    return None


def _device(args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """Returns where an operation draws: on the device that it is told, else on that of its tensors."""
    if kwargs.get("device") is not None:
        return torch.device(str(kwargs["device"])).type
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    return tensors[0].device.type if tensors else "cpu"
