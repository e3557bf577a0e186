"""Putting batches below one another and side by side."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from torch import Tensor

from roll_protocol.columns import Array
from roll_protocol.equality import same
from roll_protocol.errors import ColumnError, ConflictError, ProtocolError, RowMismatchError
from roll_protocol.frame import METRICS, Frame
from roll_protocol.metrics import merge_metrics
from roll_protocol.ragged import join
from roll_protocol.rows import Rows

MetaRule: TypeAlias = Literal["error", "first", "last", "list"]
"""How meta entries of one name are joined: equal or an error, the first, the last, or all of them in a
list."""
RULES = ("error", "first", "last", "list")


class Joins(Rows):
    """The operations that make one batch of several."""

    __slots__ = ()

    @classmethod
    def concat(
        cls,
        parts: "Sequence[Self]",
        *,
        meta: Mapping[str, MetaRule] | MetaRule = "error",
        pad: Mapping[str, float] | float | None = None,
    ) -> Self:
        """Return the rows of all parts below one another.

        Args:
            parts: Any number of batches with the same columns. No parts give an empty batch; a part that is
                only meta data adds no rows.
            meta: How entries of ``meta_info`` are joined that parts disagree about: one rule for all, or one
                for each name (the
                others: ``"error"``). ``metrics`` are joined by their own rules: each emission counts once.
            pad: The value that fills tensors of other shapes up to the largest, for all columns or by
                column; None: an error.

        Returns:
            A batch with memory of its own, also when there is one part.

        Raises:
            ColumnError: A part lacks a column, or has it with another dtype or shape.
            ConflictError: Two parts have different values of one meta entry and no rule says which to keep.
        """
        parts = list(parts)
        for part in parts:
            if not isinstance(part, Frame):
                raise ProtocolError(f"concat takes DataProtos, not {type(part).__name__} {part!r:.60}")
            part._sync()
        merged = _joined_meta([part._part_meta() for part in parts], meta)
        full = [part for part in parts if not part._is_bare()]
        out = object.__new__(cls)
        if not full:
            return out._fill(None, {}, 0, merged)
        first = full[0]
        _check_columns(full)
        rows = sum(part._rows for part in full)
        return out._fill(
            {name: _joined_tensor(name, full, pad) for name in first._tensors} if _any_batch(full) else None,
            {name: _joined_array(name, full) for name in first._arrays},
            rows,
            merged,
            dims=first._dims,
            row_ids=_joined_ids(full),
            is_pad=_joined_marks(full),
        )

    def union(
        self, other: "Self", *, align: bool = False, meta: Mapping[str, MetaRule] | MetaRule = "error"
    ) -> Self:
        """Add the columns and the meta data of another batch to this one, in place; it succeeds whole or
        changes nothing.

        Args:
            other: A batch of the same rows. A column that both have must hold equal values (NaN equals NaN).
            align: Put the rows of ``other`` into this batch's order by ``row_ids``; False takes them as they
                stand.
            meta: As in ``concat``.

        Returns:
            This batch.

        Raises:
            RowMismatchError: The row counts differ, or both have ``row_ids`` and these differ by position.
            ConflictError: A column or a meta entry of one name differs.
        """
        if not isinstance(other, Frame):
            raise ProtocolError(f"union takes a DataProto, not {type(other).__name__} {other!r:.60}")
        self._sync()
        other._sync()
        merged = _joined_meta([self._part_meta(), other._part_meta()], meta)
        if other._is_bare():
            self._meta = merged
            return self
        if align:
            other = other._pick(_places(self, other))
        if not self._is_bare():
            _check_same_rows(self, other)
            for name in self._names():
                if name in other._tensors or name in other._arrays:
                    _check_same_column(name, self._column(name), other._column(name))
        self._take_columns(other)
        self._meta = merged
        return self

    def _take_columns(self, other: Frame) -> None:
        frozen = self._frozen | (other._frozen - set(self._names()))
        self._fill(
            {**self._tensors, **other._tensors, **self._tensors}
            if self._has_batch or other._has_batch
            else None,
            {**self._arrays, **other._arrays, **self._arrays},
            other._rows,
            self._meta,
            frozen=frozen,
            dims=other._dims if other._has_batch else self._dims,
            row_ids=self._row_ids if self._row_ids is not None else other._row_ids,
            is_pad=self._is_pad if self._is_pad is not None else other._is_pad,
        )


def _any_batch(parts: Sequence[Frame]) -> bool:
    return any(part._has_batch for part in parts)


def _check_columns(parts: Sequence[Frame]) -> None:
    first = parts[0]
    for number, part in enumerate(parts):
        if part._tensors.keys() == first._tensors.keys() and part._arrays.keys() == first._arrays.keys():
            continue
        missing = sorted({*first._names()} - {*part._names()})
        extra = sorted({*part._names()} - {*first._names()})
        if missing or extra:
            raise ColumnError(
                f"part {number} of {len(parts)} "
                + " and ".join([f"lacks {missing}"] * bool(missing) + [f"alone has {extra}"] * bool(extra))
                + "; parts are joined when they have the same columns: select them first"
            )
        moved = sorted(first._tensors.keys() ^ part._tensors.keys())
        raise ColumnError(
            f"{moved} are tensors in some parts and arrays in others; make them one or the other"
        )


def _joined_tensor(name: str, parts: Sequence[Frame], pad: Mapping[str, float] | float | None) -> Tensor:
    tensors = [part._tensors[name] for part in parts]
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) > 1:
        raise ColumnError(
            f"column {name!r} has dtypes {sorted(map(str, dtypes))} in different parts; convert them"
        )
    if len({tensor.is_nested for tensor in tensors}) > 1:
        raise ColumnError(f"column {name!r} is jagged in some parts only; make it jagged in all")
    shapes = {tuple(tensor.shape[1:]) for tensor in tensors}
    if len(shapes) > 1 and not tensors[0].is_nested:
        tensors = _padded(name, tensors, shapes, pad.get(name) if isinstance(pad, Mapping) else pad)
    return join(tensors)


def _padded(
    name: str, tensors: list[Tensor], shapes: set[tuple[int, ...]], value: float | None
) -> list[Tensor]:
    if value is None or len({len(shape) for shape in shapes}) > 1:
        raise ColumnError(
            f"column {name!r} has row shapes {sorted(shapes)} in different parts; "
            f"concat(parts, pad={{{name!r}: value}}) fills up the shorter ones"
        )
    largest = [max(sizes) for sizes in zip(*shapes, strict=True)]
    filled = []
    for tensor in tensors:
        out = tensor.new_full((tensor.shape[0], *largest), value)
        out[tuple(slice(size) for size in tensor.shape)] = tensor
        filled.append(out)
    return filled


def _joined_array(name: str, parts: Sequence[Frame]) -> Array:
    arrays = [part._arrays[name] for part in parts]
    kinds = {array.dtype if array.dtype.kind not in "US" else array.dtype.kind for array in arrays}
    if len(kinds) > 1:
        raise ColumnError(
            f"column {name!r} has dtypes {sorted(map(str, kinds))} in different parts; convert them"
        )
    shapes = {array.shape[1:] for array in arrays}
    if len(shapes) > 1:
        raise ColumnError(
            f"column {name!r} has row shapes {sorted(shapes)} in different parts; make them equal"
        )
    dtypes = {array.dtype for array in arrays}
    return np.concatenate(arrays, dtype=dtypes.pop() if len(dtypes) == 1 else None)


def _joined_ids(parts: Sequence[Frame]) -> Array | None:
    ids = [part._row_ids for part in parts]
    if all(one is None for one in ids):
        return None
    lacking = [
        number
        for number, (one, part) in enumerate(zip(ids, parts, strict=True))
        if one is None and part._rows
    ]
    if lacking:
        raise RowMismatchError(
            f"parts {lacking} have no row_ids and others have; give them some: part.with_row_ids()"
        )
    joined: Array = np.concatenate([one for one in ids if one is not None])
    return joined


def _joined_marks(parts: Sequence[Frame]) -> Array | None:
    if all(part._is_pad is None for part in parts):
        return None
    marks: Array = np.concatenate(
        [np.zeros(part._rows, dtype=bool) if part._is_pad is None else part._is_pad for part in parts]
    )
    return marks


def _check_same_rows(left: Frame, right: Frame) -> None:
    if left._rows != right._rows:
        raise RowMismatchError(
            f"union joins batches of the same rows: this one has {left._rows}, the other {right._rows}"
        )
    if left._has_batch and right._has_batch and left._dims != right._dims:
        raise RowMismatchError(f"batch dimensions after the rows differ: {left._dims} and {right._dims}")
    if left._row_ids is None or right._row_ids is None:
        return
    if not same(left._row_ids, right._row_ids):
        unequal = left._row_ids != right._row_ids
        row = int(np.argmax(unequal))
        raise RowMismatchError(
            f"row {row} is {left._row_ids[row]!r} here and {right._row_ids[row]!r} in the other batch; "
            "union(other, align=True) puts its rows into this order"
        )


def _check_same_column(name: str, left: object, right: object) -> None:
    if not same(left, right):
        raise ConflictError(
            f"column {name!r} differs between the two batches; rename or drop it in one of them before union"
        )


def _places(left: Frame, right: Frame) -> np.ndarray[Any, np.dtype[np.int64]]:
    if left._row_ids is None or right._row_ids is None:
        raise RowMismatchError("union(align=True) needs row_ids on both batches; with_row_ids() makes them")
    places = {row_id: place for place, row_id in enumerate(right._row_ids.tolist())}
    if len(places) != right._rows:
        raise RowMismatchError(
            "union(align=True) needs row_ids in the other batch that name one row each; some repeat"
        )
    wanted = left._row_ids.tolist()
    lacking = [row_id for row_id in wanted if row_id not in places]
    if lacking:
        raise RowMismatchError(
            f"the other batch lacks {len(lacking)} rows of this one, for example {lacking[0]!r}"
        )
    if len(set(wanted)) != len(places):
        raise RowMismatchError(
            f"the other batch has {len(places)} rows and this one names {len(set(wanted))} of them"
        )
    return np.array([places[row_id] for row_id in wanted], dtype=np.int64)


def _joined_meta(metas: Sequence[dict[str, Any]], rules: Mapping[str, MetaRule] | MetaRule) -> dict[str, Any]:
    out: dict[str, Any] = {}  # meta data may be anything
    for name in {name: None for meta in metas for name in meta}:
        values = [meta[name] for meta in metas if name in meta]
        if name == METRICS and all(isinstance(value, Mapping) for value in values):
            out[name] = merge_metrics(values)
        else:
            out[name] = _joined_entry(
                name, values, rules if isinstance(rules, str) else rules.get(name, "error")
            )
    return out


def _joined_entry(name: str, values: Sequence[Any], rule: str) -> Any:  # see _joined_meta
    if rule not in RULES:
        raise ProtocolError(f"meta entry {name!r} is joined by {rule!r}; choose from {list(RULES)}")
    if rule == "list":
        return list(values)
    if rule == "last":
        return values[-1]
    for value in values[1:]:
        if rule == "error" and not same(value, values[0]):
            raise ConflictError(
                f"meta entry {name!r} is {values[0]!r:.60} in one part and {value!r:.60} in another; "
                "say which holds: "
                f"meta={{{name!r}: 'first'}} ('last', 'list'), or report a number as a metric"
            )
    return values[0]
