"""Dictionaries of columns that lie in memory nobody may write to: an entry is copied when it is first handed
out."""

from collections.abc import Iterator, Mapping
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np
from torch import Tensor

from roll_protocol.columns import Array, check_array, check_name
from roll_protocol.errors import ColumnError
from roll_protocol.ragged import jagged, values_and_offsets

V = TypeVar("V")
_THAWING = Lock()


class Lent(dict[str, V], Generic[V]):
    """A dictionary that copies a frozen entry before it hands it out, and only that entry."""

    __slots__ = ("frozen",)

    def __init__(self, entries: Mapping[str, V], frozen: set[str]) -> None:
        super().__init__()
        for name, value in raw(entries).items():
            super().__setitem__(name, value)
        self.frozen = frozen
        """Names of the entries that must not be written to."""

    def thaw(self, value: V) -> V:
        """Return a writable copy of ``value``."""
        raise NotImplementedError

    def __getitem__(self, name: str) -> V:
        if name in self.frozen:
            with _THAWING:  # two threads must get the same copy
                if name in self.frozen:
                    super().__setitem__(name, self.thaw(super().__getitem__(name)))
                    self.frozen.discard(name)
        return super().__getitem__(name)

    def __setitem__(self, name: str, value: V) -> None:
        super().__setitem__(name, value)
        self.frozen.discard(name)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self.frozen.discard(name)

    def __iter__(self) -> Iterator[str]:  # makes dict(self) and update(self) read through __getitem__
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:  # the signature of dict.get
        """Return an entry, or ``default``."""
        return self[name] if name in self else default  # noqa: SIM401  # dict.get would not copy it out

    def items(self) -> Any:  # a view that reads through __getitem__
        """Return the entries; each is copied out when the loop reaches it."""
        return _Items(self)

    def values(self) -> Any:  # see items
        """Return the values; each is copied out when the loop reaches it."""
        return _Values(self)

    def pop(self, name: str, *default: Any) -> Any:  # the signature of dict.pop
        """Take an entry out and return it."""
        if name not in self:
            return super().pop(name, *default)
        value = self[name]
        super().__delitem__(name)
        return value

    def popitem(self) -> tuple[str, V]:
        """Take the last entry out and return it."""
        name = next(reversed(self))
        return name, self.pop(name)

    def update(self, *args: Any, **kwargs: Any) -> None:  # the signature of dict.update
        """Write every given entry."""
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:  # the signature of dict.setdefault
        """Return an entry, writing ``default`` first where there is none."""
        if name not in self:
            self[name] = default
        return self[name]

    def clear(self) -> None:
        """Take every entry out."""
        super().clear()
        self.frozen.clear()

    def copy(self) -> dict[str, V]:
        """Return a plain dictionary with every entry copied out."""
        return dict(self.items())

    def __or__(self, other: Any) -> Any:  # the signature of dict.__or__
        return self.copy() | dict(other)

    def __ror__(self, other: Any) -> Any:  # see __or__
        return dict(other) | self.copy()

    def __ior__(self, other: Any) -> Any:  # see __or__
        self.update(other)
        return self

    def __reduce_ex__(self, protocol: Any) -> tuple[object, ...]:
        return dict, (self.copy(),)


class _Items(Generic[V]):
    def __init__(self, owner: Lent[V]) -> None:
        self.owner = owner

    def __len__(self) -> int:
        return len(self.owner)

    def __iter__(self) -> Iterator[tuple[str, V]]:
        return ((name, self.owner[name]) for name in self.owner)

    def __reversed__(self) -> Iterator[tuple[str, V]]:
        return ((name, self.owner[name]) for name in reversed(self.owner))


class _Values(Generic[V]):
    def __init__(self, owner: Lent[V]) -> None:
        self.owner = owner

    def __len__(self) -> int:
        return len(self.owner)

    def __iter__(self) -> Iterator[V]:
        return (self.owner[name] for name in self.owner)


def raw(entries: Mapping[str, V]) -> dict[str, V]:
    """Return the entries as they lie, copying nothing."""
    if isinstance(entries, Lent):
        return {name: dict.__getitem__(entries, name) for name in dict.__iter__(entries)}
    return dict(entries)


class Tensors(Lent[Tensor]):
    """Tensor columns of a received batch, as the entries of its TensorDict."""

    __slots__ = ()

    def thaw(self, value: Tensor) -> Tensor:
        """Return a copy with the same values, dtype and ``requires_grad``."""
        return thawed(value)


def thawed(tensor: Tensor) -> Tensor:
    """Return a copy in memory of its own, a leaf with the same ``requires_grad``."""
    if tensor.is_nested:
        values, offsets = values_and_offsets(tensor)
        return jagged(thawed(values), offsets.clone())
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


class Arrays(Lent[Array]):
    """Array columns as the user sees them; every write is checked."""

    __slots__ = ("rows",)

    def __init__(self, entries: Mapping[str, Array], frozen: set[str], rows: int | None) -> None:
        super().__init__(entries, frozen)
        self.rows = rows
        """How many rows a column must have; None while nothing fixes it."""

    def thaw(self, value: Array) -> Array:
        """Return a copy that may be written to, also the tensors and arrays in a column of objects."""
        copy = value.copy()
        if copy.dtype == object:
            flat = copy.reshape(-1)
            for place, entry in enumerate(flat):
                if type(entry) is Tensor:
                    flat[place] = thawed(entry)
                elif type(entry) is np.ndarray:
                    flat[place] = entry.copy()
        return copy

    def __setitem__(self, name: str, value: Array) -> None:
        value = check_array(check_name(name), value)
        if self.rows is None:
            self.rows = len(value)
        elif len(value) != self.rows:
            raise ColumnError(
                f"column {name!r} has {len(value)} rows and the batch has {self.rows}; "
                "all columns share one row count"
            )
        super().__setitem__(name, value)
