"""Buckets in memory that source and targets share, where they run on one machine."""

import os
import pickle
import secrets
import socket
import weakref
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import reduce_tensor

from roll_strategies.errors import WeightSyncError
from roll_strategies.weights.manifest import Bucket, SharedSpace
from roll_strategies.weights.transport import Answer, Transport

ENDINGS = ("begin_update", "commit_update", "abort_update")
"""Messages between which spaces live."""


class ColocatedTransport:
    """Sends messages over another transport, and of buckets only where they lie.

    On the host that is a file without a name that every process of the user can map, and no byte is copied on
    its way; on a GPU it is a handle (CUDA IPC).

    Args:
        control: reaches every target.
        device: where buckets are packed: that of the source's weights.
    """

    def __init__(self, control: Transport, *, device: torch.device) -> None:
        self._control, self._device = control, device
        self._spaces: dict[int, _Space] = {}
        weakref.finalize(self, _release, self._spaces)

    def send(self, method: str, payload: object) -> Answer:
        """Calls `method(payload)` on every target; a bucket's bytes stay where they are."""
        if method in ENDINGS:
            # All answers to buckets are there, so whoever needs a space has opened it.
            _release(self._spaces)
        if isinstance(payload, Bucket):
            data = payload.data
            assert isinstance(data, Tensor)
            shared = self._spaces[data.data_ptr()].shared
            return self._control.send(method, replace(payload, data=None, shared=shared))
        return self._control.send(method, payload)

    def space(self, num_bytes: int) -> Tensor:
        """Returns shared memory for a bucket."""
        make = _on_host if self._device.type == "cpu" else _on_device
        space = make(max(1, num_bytes), self._device)
        self._spaces[space.tensor.data_ptr()] = space
        return space.tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Space:
    tensor: Tensor
    shared: SharedSpace
    file: int | None = None


def _release(spaces: dict[int, _Space]) -> None:
    while spaces:
        _, space = spaces.popitem()
        if space.file is not None:
            os.close(space.file)


def _on_host(num_bytes: int, device: torch.device) -> _Space:
    file = os.memfd_create(f"roll-weights-{secrets.token_hex(8)}")
    path = f"/proc/{os.getpid()}/fd/{file}"
    try:
        # Now, so that a machine without memory says so here and does not end the process at a later write.
        os.posix_fallocate(file, 0, num_bytes)
        tensor = _mapped(path, num_bytes)
    except OSError as full:
        os.close(file)
        raise WeightSyncError(
            f"no {num_bytes} bytes of shared memory for a bucket of weights ({full}); set "
            "model_update_buffer_size_mb lower"
        ) from full
    shared = SharedSpace(key=f"{path}|{os.readlink(path)}", host=socket.gethostname(), num_bytes=num_bytes)
    return _Space(tensor=tensor, shared=shared, file=file)


def _mapped(path: str, num_bytes: int) -> Tensor:
    return torch.from_file(path, shared=True, size=num_bytes, dtype=torch.uint8)


def _on_device(num_bytes: int, device: torch.device) -> _Space:
    tensor = torch.empty(num_bytes, dtype=torch.uint8, device=device)
    shared = SharedSpace(
        key=secrets.token_hex(8),
        host=socket.gethostname(),
        num_bytes=num_bytes,
        device=_identity(tensor.device.index),
        handle=pickle.dumps(reduce_tensor(tensor)),  # type: ignore[no-untyped-call]  # torch
    )
    return _Space(tensor=tensor, shared=shared)


def _identity(index: int) -> str:
    """Returns what names a GPU in every process, whatever devices it sees."""
    properties: Any = torch.cuda.get_device_properties(index)  # Any: not all versions declare uuid
    return f"cuda {properties.uuid}"


def opened(shared: SharedSpace, *, rank: int) -> Tensor:
    """Returns the memory of a space that another process made.

    Args:
        shared: where it is.
        rank: this target's rank, for messages.

    Raises:
        WeightSyncError: this process cannot reach it.
    """
    if shared.handle is None:
        path, _, name = shared.key.partition("|")
        try:
            # The same number may be another file of another process elsewhere.
            reachable = os.readlink(path) == name
        except OSError:
            reachable = False
        if not reachable:
            raise _apart(shared, rank, "one machine and container, as one user")
        return _mapped(path, shared.num_bytes)
    for index in range(torch.cuda.device_count()):
        if _identity(index) == shared.device:
            rebuild, arguments = pickle.loads(shared.handle)
            # The seventh argument is the number of the device at the source.
            tensor = rebuild(*arguments[:6], index, *arguments[7:])
            assert isinstance(tensor, Tensor)
            return tensor
    raise _apart(shared, rank, f"the device {shared.device!r}")


def _apart(shared: SharedSpace, rank: int, needed: str) -> WeightSyncError:
    return WeightSyncError(
        f"target rank {rank} on {socket.gethostname()!r} cannot open memory of the source on "
        f"{shared.host!r}: colocated updates need both on {needed}; set strategy_config.update_transport to "
        "'object_store' or 'broadcast'"
    )
