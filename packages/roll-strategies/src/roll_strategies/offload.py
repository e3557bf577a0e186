"""Giving the memory of tensors back and bringing it back, without losing the tensors' identity."""

import enum
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from roll_strategies.errors import StrategyConfigError
from roll_strategies.memory import give_back, shared_bytes


class StateKind(enum.StrEnum):
    """What can be offloaded on its own."""

    MODEL_PARAMS = "model_params"
    """Parameters and buffers."""
    GRADIENTS = "gradients"
    OPTIMIZER_STATES = "optimizer_states"
    KV_CACHE = "kv_cache"
    OTHER_PARAMS = "other_params"
    """What an engine keeps beside those, such as float32 copies."""


def state_kinds(include: Sequence[str] | None) -> tuple[StateKind, ...]:
    """Returns the kinds that `include` names; None means all.

    Raises:
        StrategyConfigError: an unknown kind.
    """
    if include is None:
        return tuple(StateKind)
    valid = [kind.value for kind in StateKind]
    for name in include:
        if name not in valid:
            raise StrategyConfigError(
                f"no state is called {name!r}; include may hold {valid}, or be None for all"
            )
    return tuple(StateKind(name) for name in include)


class Parking:
    """Tensors whose storage is emptied in place and filled again.

    The tensor objects, and every view of them, stay valid: only the bytes move. On an accelerator they go to
    host memory; on a CPU, where host memory is what has to be freed, they go to a temporary file.
    """

    def __init__(self) -> None:
        self._parked: dict[StateKind, list[tuple[torch.UntypedStorage, int, Tensor | None]]] = {}
        self._files: dict[StateKind, Path] = {}
        self._folder: Path | None = None

    def is_parked(self, kind: StateKind) -> bool:
        """Whether the tensors of that kind are empty now."""
        return kind in self._parked

    def park(self, kind: StateKind, tensors: Iterable[Tensor]) -> int:
        """Empties the storages of these tensors and returns the number of bytes given back; parked kinds
        stay as they are."""
        if kind in self._parked:
            return 0
        storages = {}
        for tensor in tensors:
            for part in plain_parts(tensor):
                storage = part.untyped_storage()
                if storage.nbytes() and part.device.type != "meta":
                    storages[storage.data_ptr()] = storage
        entries: list[tuple[torch.UntypedStorage, int, Tensor | None]] = []
        on_disk = [s for s in storages.values() if s.device.type == "cpu"]
        if on_disk:
            self._write(kind, on_disk)
        for storage in storages.values():
            size = storage.nbytes()
            if storage.device.type == "cpu":
                entries.append((storage, size, None))
            else:
                entries.append((storage, size, _bytes_of(storage).to("cpu")))
            storage.resize_(0)
        if on_disk:
            give_back()
        self._parked[kind] = entries
        return sum(size for _, size, _ in entries)

    def unpark(self, kind: StateKind) -> int:
        """Fills the storages again and returns the number of bytes; kinds that are not parked stay as they
        are."""
        entries = self._parked.pop(kind, None)
        if entries is None:
            return 0
        path = self._files.pop(kind, None)
        file = path.open("rb") if path is not None else None
        try:
            for storage, size, copy in entries:
                storage.resize_(size)
                if copy is not None:
                    _bytes_of(storage).copy_(copy)
                else:
                    assert file is not None
                    read = file.readinto(shared_bytes(storage, num_bytes=size).data)
                    assert read == size
        finally:
            if file is not None:
                file.close()
        if path is not None:
            path.unlink()
        return sum(size for _, size, _ in entries)

    def _write(self, kind: StateKind, storages: Sequence[torch.UntypedStorage]) -> None:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="roll-offload-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = self._folder / kind.value
        with path.open("wb") as file:
            for storage in storages:
                file.write(shared_bytes(storage, num_bytes=storage.nbytes()).data)
        self._files[kind] = path


def plain_parts(tensor: Tensor) -> list[Tensor]:
    """Returns the tensors with memory that a tensor is made of: this rank's part of a sharded one, codes and
    scales of a quantised one, and any other by itself."""
    flatten: Any = getattr(tensor, "__tensor_flatten__", None)  # Any: a protocol of torch without a type
    if flatten is None:
        return [tensor.detach()]
    inner = [getattr(tensor, name) for name in flatten()[0]]  # a sharded tensor names its mesh too
    return [part for held in inner if isinstance(held, Tensor) for part in plain_parts(held)]


def _bytes_of(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(
        storage, 0, (storage.nbytes(),), (1,)
    )


def own_memory(model: nn.Module) -> None:
    """Gives every parameter and buffer memory of its own where it lies in a mapped file, which cannot be
    emptied."""
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.device.type == "cpu" and not tensor.untyped_storage().resizable():
                tensor.data = tensor.detach().clone()
