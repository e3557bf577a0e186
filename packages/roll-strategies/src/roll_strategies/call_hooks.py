"""What the executor needs from torch around a call, so that it needs no torch itself."""

import contextlib
import gc
from collections.abc import Mapping

import torch
import torch.distributed as dist

from roll_strategies.connections import hang_up
from roll_strategies.own_draws import OwnDraws
from roll_strategies.random_state import random_state, set_random_state


class TorchCallHooks:
    """Threads, device placement, memory and random state of a worker; entry-point group `roll.call_hooks`."""

    def __init__(self) -> None:
        """Takes nothing: every worker has hooks of its own."""
        self._own: OwnDraws | None = None

    def start_worker(self, worker: object) -> None:
        """Keeps a CPU worker to one torch thread: several share a machine, and one thread sums in a fixed
        order."""
        if getattr(worker, "device_type", "cpu") == "cpu":
            torch.set_num_threads(1)

    def before_call(
        self,
        worker: object,
        method: str,
        prefetch: bool,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> tuple[tuple[object, ...], Mapping[str, object]]:
        """Returns the arguments, moved to the worker's device when `prefetch` is set."""
        if not prefetch:
            return args, kwargs
        device = str(getattr(worker, "device_type", "cpu"))
        return tuple(_moved(a, device) for a in args), {k: _moved(v, device) for k, v in kwargs.items()}

    def after_call(self, worker: object, method: str, clear_cache: bool) -> None:
        """Gives cached memory back when `clear_cache` is set."""
        device = str(getattr(worker, "device_type", "cpu"))
        if not clear_cache or device == "cpu":
            return
        gc.collect()
        module = torch.get_device_module(device)
        if hasattr(module, "empty_cache"):
            module.empty_cache()

    def sharing_process(self, worker: object, beside_others: bool) -> contextlib.AbstractContextManager[None]:
        """Lets a worker that shares its process draw what it would draw in a process of its own."""
        if self._own is None:
            self._own = OwnDraws(str(getattr(worker, "worker_name", "worker")))
        return self._own.beside_others() if beside_others else self._own.in_place()

    def random_state(self) -> object:
        """Returns the state of every generator that a worker draws from."""
        return random_state()

    def set_random_state(self, state: object) -> None:
        """Sets what `random_state` returned."""
        assert isinstance(state, Mapping)
        set_random_state(state)

    def abort(self, worker: object) -> None:
        """Leaves every collective: a rank that waits for a failed peer raises instead of waiting for a
        timeout.

        The groups are of no use afterwards.
        """
        if dist.is_available() and dist.is_initialized():
            group = dist.group.WORLD
            # NCCL calls its kernels off; gloo has nothing to call off, and its connections are closed below.
            with contextlib.suppress(RuntimeError, NotImplementedError):
                assert group is not None
                group.abort()
        hang_up()


def _moved(value: object, device: str) -> object:
    move = getattr(value, "to", None)
    return move(device) if callable(move) else value
