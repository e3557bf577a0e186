"""Choosing, taking out and renaming columns."""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Self

import torch
from torch import Tensor

from roll_protocol.columns import Array
from roll_protocol.errors import ColumnError, ColumnNotFoundError
from roll_protocol.frame import Frame
from roll_protocol.lent import thawed

Names = str | Iterable[str] | None


def _listed(names: Names) -> list[str] | None:
    if names is None:
        return None
    return [names] if isinstance(names, str) else list(names)


class Fields(Frame):
    """The operations on columns of a DataProto."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        self._sync()
        return name in self._tensors or name in self._arrays

    def __setitem__(self, name: str, value: Tensor | Array) -> None:
        """Write a column: a tensor or a NumPy array of as many rows as the batch has."""
        self._sync()
        self._put(name, value)

    def __delitem__(self, name: str) -> None:
        self._sync()
        self._column(name)
        self._drop(name)

    def update(self, columns: Mapping[str, Tensor | Array]) -> None:
        """Write several columns; when one cannot be written, none is."""
        self._sync()
        trial = self._alias()
        for name, value in columns.items():
            trial._put(name, value)
        for name, value in columns.items():
            self._put(name, value)

    def keys(self) -> list[str]:
        """Return the names of all columns, tensors first."""
        self._sync()
        return self._names()

    def _chosen(self, names: Names, where: Mapping[str, object], what: str) -> list[str]:
        chosen = _listed(names)
        if chosen is None:
            return list(where)
        lacking = [name for name in chosen if name not in where]
        if lacking:
            raise ColumnNotFoundError(f"{what} has no {lacking}; it has {list(where)}")
        return chosen

    def select(
        self,
        batch_keys: Names = None,
        non_tensor_batch_keys: Names = None,
        meta_info_keys: Names = None,
        deepcopy: bool = False,
    ) -> Self:
        """Return a batch with some of the columns.

        Args:
            batch_keys: Tensor columns, a name or several; None takes all, ``[]`` none.
            non_tensor_batch_keys: Array columns, likewise.
            meta_info_keys: Entries of ``meta_info``, likewise.
            deepcopy: Copy what is chosen; False shares its memory.

        Raises:
            ColumnNotFoundError: A name is not there.
        """
        self._sync()
        tensors = self._chosen(batch_keys, self._tensors, "batch")
        arrays = self._chosen(non_tensor_batch_keys, self._arrays, "non_tensor_batch")
        part = self._new(
            {name: self._tensors[name] for name in tensors} if self._has_batch or not arrays else None,
            {name: self._arrays[name] for name in arrays},
            self._rows,
            self._chosen_meta(meta_info_keys),
            frozen=self._frozen,
            dims=self._dims,
            row_ids=self._row_ids,
            is_pad=self._is_pad,
        )
        if not self._has_batch and not self._rows and not self._arrays:
            part._has_batch = False
        return part.clone() if deepcopy else part

    def _chosen_meta(self, names: Names) -> dict[str, object]:
        meta = self._part_meta()
        return {name: meta[name] for name in self._chosen(names, meta, "meta_info")}

    def pop(
        self, batch_keys: Names = None, non_tensor_batch_keys: Names = None, meta_info_keys: Names = None
    ) -> Self:
        """Take columns and meta entries out of this batch, in place, and return them as a batch; rows stay.

        Args:
            batch_keys, non_tensor_batch_keys, meta_info_keys: As in ``select``, but None takes none.

        Raises:
            ColumnNotFoundError: A name is not there; then nothing is taken out.
        """
        part = self.select(batch_keys or [], non_tensor_batch_keys or [], meta_info_keys or [])
        for name in [*part._tensors, *part._arrays]:
            self._drop(name)
        for name in part._meta:
            del self._meta[name]
        return part

    def rename(self, old_keys: str | Sequence[str], new_keys: str | Sequence[str]) -> Self:
        """Give columns other names, all at once and in place, so that two can swap theirs.

        Args:
            old_keys: A name or several.
            new_keys: As many new names.

        Returns:
            This batch.

        Raises:
            ColumnNotFoundError: An old name is not there.
            ColumnError: A new name is taken, or named twice.
        """
        self._sync()
        old, new = _listed(old_keys) or [], _listed(new_keys) or []
        if len(old) != len(new):
            raise ColumnError(f"{len(old)} columns are to get {len(new)} names; give one name for each")
        self._chosen(old, dict.fromkeys(self._names()), "the batch")
        names = dict(zip(old, new, strict=True))
        after = [names.get(name, name) for name in self._names()]
        taken = sorted({name for name in after if after.count(name) > 1})
        if taken or len(names) != len(old):
            raise ColumnError(
                f"after renaming {old} to {new} a name would stand for two columns: {taken or old}"
            )
        return self._become_columns(names)

    def _become_columns(self, names: Mapping[str, str]) -> Self:
        self._fill(
            {names.get(name, name): tensor for name, tensor in self._tensors.items()}
            if self._has_batch
            else None,
            {names.get(name, name): array for name, array in self._arrays.items()},
            self._rows,
            self._meta,
            frozen={names.get(name, name) for name in self._frozen},
            dims=self._dims,
            row_ids=self._row_ids,
            is_pad=self._is_pad,
        )
        return self

    def clone(self) -> Self:
        """Return a batch with memory of its own: tensors, arrays, the objects in them, and meta data are
        copied."""
        self._sync()
        copy = self._alias()
        copy._tensors = {name: _cloned(tensor) for name, tensor in self._tensors.items()}
        copy._arrays = {name: deepcopy(array) for name, array in self._arrays.items()}
        copy._meta = deepcopy(copy._meta)
        copy._frozen = set()
        copy._row_ids = None if self._row_ids is None else self._row_ids.copy()
        copy._is_pad = None if self._is_pad is None else self._is_pad.copy()
        return copy

    def to(self, device: str | torch.device, *, non_blocking: bool = False) -> Self:
        """Return the batch with its tensors, also those inside meta data, on a device; this one stays where
        it is.

        Args:
            device: As for ``torch.Tensor.to``.
            non_blocking: As for ``torch.Tensor.to``.

        Returns:
            A batch that shares the tensors which are on the device already.
        """
        self._sync()
        moved = self._alias()
        moved._tensors = {
            name: tensor.to(device, non_blocking=non_blocking) for name, tensor in self._tensors.items()
        }
        moved._frozen = {
            name
            for name in self._frozen
            if name in self._arrays or moved._tensors[name] is self._tensors[name]
        }
        moved._meta = {name: _moved(value, device, non_blocking) for name, value in moved._meta.items()}
        return moved


def _cloned(tensor: Tensor) -> Tensor:
    return thawed(tensor) if tensor.is_nested else tensor.clone()


def _moved(value: object, device: str | torch.device, non_blocking: bool) -> object:
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=non_blocking)
    if type(value) is dict:
        return {name: _moved(entry, device, non_blocking) for name, entry in value.items()}
    if type(value) is list:
        return [_moved(entry, device, non_blocking) for entry in value]
    if type(value) is tuple:
        return tuple(_moved(entry, device, non_blocking) for entry in value)
    return value
