"""Hypothesis strategies for batches, and batches as plain lists of rows to compare with.

Needs ``pip install 'roll-protocol[testing]'``.

Example:
    >>> @given(data_protos(max_rows=5), st.integers(1, 7))
    ... def test_my_dispatch_keeps_every_row(batch, workers):
    ...     assert DataProto.concat(my_split(batch, workers)) == batch
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from roll_protocol.batch import DataProto
from roll_protocol.columns import Array, object_array
from roll_protocol.metrics import Metric
from roll_protocol.ragged import jagged, values_and_offsets

DTYPES: Final = (
    torch.float32,
    torch.int64,
    torch.bool,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.complex64,
)
"""Dtypes that the strategies draw from unless told otherwise."""
ARRAY_DTYPES: Final = ("f4", "i8", "?", "f8", "c8", "u2", "U3", "S2", "M8[s]")
"""Dtypes of array columns that the strategies draw from."""
_FLAG: Final = st.booleans()
_NAMES: Final = st.sampled_from(
    [f"{kind}{number}" for number in range(4) for kind in ("ids", "mask", "text")]
)


@st.composite
def tensors(
    draw: st.DrawFn,
    rows: int,
    *,
    dtypes: Sequence[torch.dtype] = DTYPES,
    max_dims: int = 2,
    max_size: int = 3,
) -> Tensor:
    """Draw a tensor column of any values, NaN and infinity included.

    Args:
        rows: How many rows it has.
        dtypes: Which dtypes it may have.
        max_dims: How many dimensions there are after the rows, at most.
        max_size: How large such a dimension is, at most; it may be 0.

    Returns:
        Shape [rows, ...]. Some are not contiguous, and some share a larger storage.
    """
    dtype = draw(st.sampled_from(list(dtypes)))
    shape = (rows, *draw(st.lists(st.integers(0, max_size), max_size=max_dims)))
    tensor = _values(draw, dtype, shape)
    form = draw(st.sampled_from(["plain", "plain", "strided", "slice"]))
    if form == "strided":
        return torch.stack([tensor, tensor], dim=-1)[..., 0]
    if form == "slice":
        return torch.cat([tensor, tensor, tensor])[rows : 2 * rows]
    return tensor


def _values(draw: st.DrawFn, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    count = int(np.prod(shape, dtype=np.int64))
    if dtype == torch.bool or draw(st.booleans()):
        values = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
        return torch.tensor(values, dtype=torch.float32).to(dtype).reshape(tuple(shape))
    size = count * dtype.itemsize
    data = bytearray(draw(st.binary(min_size=size, max_size=size)))
    if not data:
        return torch.empty(tuple(shape), dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).reshape(tuple(shape))


@st.composite
def jagged_tensors(draw: st.DrawFn, rows: int, *, max_size: int = 3) -> Tensor:
    """Draw a jagged tensor column: row ``i`` is a float32 vector of its own length, which may be 0."""
    lengths = draw(st.lists(st.integers(0, max_size), min_size=rows, max_size=rows))
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    return jagged(_values(draw, torch.float32, (int(offsets[-1]),)), offsets)


def objects() -> st.SearchStrategy[Any]:  # a row of an object column may be anything
    """Draw a value of one row of an object column: scalars, strings, containers, arrays, None."""
    scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(width=16) | st.text(max_size=3)
    containers = st.lists(scalars, max_size=2) | st.dictionaries(st.text(max_size=2), scalars, max_size=2)
    vectors = st.lists(st.integers(0, 9), max_size=3).map(lambda row: np.array(row, dtype=np.int64))
    return scalars | containers | st.tuples(scalars, scalars) | vectors | vectors.map(torch.from_numpy)


@st.composite
def arrays(draw: st.DrawFn, rows: int, *, dtypes: Sequence[str] = ARRAY_DTYPES, max_size: int = 3) -> Array:
    """Draw an array column: objects, or real values of one or two dimensions."""
    if draw(st.booleans()):
        return object_array(draw(st.lists(objects(), min_size=rows, max_size=rows)))
    dtype = np.dtype(draw(st.sampled_from(list(dtypes))))
    shape = (rows, *draw(st.lists(st.integers(0, max_size), max_size=1)))
    count = int(np.prod(shape, dtype=np.int64))
    values = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    return np.array(values, dtype=np.int64).astype(dtype).reshape(shape)


def metrics() -> st.SearchStrategy[dict[str, Any]]:  # metrics may be anything
    """Draw a dictionary of metrics: declared, tagged, and plain."""
    number = st.integers(-8, 8).map(float)
    declared = st.one_of(
        number.map(Metric.sum),
        number.map(Metric.max),
        number.map(Metric.min),
        number.map(Metric.last),
        number.map(Metric.list),
        st.builds(
            lambda value, weight: Metric.mean(value, weight=weight), number, st.integers(1, 8).map(float)
        ),
    )
    return st.fixed_dictionaries(
        {},
        optional={
            "loss": number,
            "lengths": st.lists(number, max_size=2),
            "tokens@sum": number,
            "reward@mean": number,
            "norm@max": number,
            "declared": declared,
        },
    )


def meta_infos() -> st.SearchStrategy[dict[str, Any]]:  # meta data may be anything
    """Draw meta data: plain values, a tensor, and metrics."""
    small = st.integers(0, 9)
    return st.fixed_dictionaries(
        {},
        optional={
            "global_step": small,
            "temperature": st.floats(width=16),
            "names": st.lists(st.text(max_size=2), max_size=2),
            "scale": small.map(lambda value: torch.tensor([float(value)])),
            "nested": st.fixed_dictionaries({"key": small}),
            "metrics": metrics(),
        },
    )


@st.composite
def data_protos(
    draw: st.DrawFn,
    *,
    min_rows: int = 0,
    max_rows: int = 5,
    max_columns: int = 4,
    dtypes: Sequence[torch.dtype] = DTYPES,
    with_meta: bool = True,
    with_ragged: bool = True,
) -> DataProto:
    """Draw a batch of any columns: tensors of mixed dtypes, jagged tensors, objects, real arrays, or none.

    Args:
        min_rows, max_rows: How many rows it has.
        max_columns: How many columns it has, at most.
        dtypes: Which dtypes tensor columns may have.
        with_meta: Whether it may have meta data and row identities.
        with_ragged: Whether it may have jagged columns.
    """
    rows = draw(st.integers(min_rows, max_rows))
    kinds = [tensors(rows, dtypes=dtypes), arrays(rows)]
    if with_ragged:
        kinds.append(jagged_tensors(rows))
    least = 1 if min_rows else 0
    columns: dict[str, Any] = draw(  # tensors and arrays
        st.dictionaries(_NAMES, st.one_of(kinds), min_size=least, max_size=max_columns)
    )
    batch = DataProto.from_single_dict(columns, draw(meta_infos()) if with_meta else None)
    if columns and with_meta and draw(_FLAG):
        batch.row_ids = draw(st.permutations(range(rows)))
    return batch


def as_rows(batch: DataProto) -> list[dict[str, Any]]:  # a row may hold anything
    """Return a batch as plain rows: a dictionary each, tensors copied out, jagged rows at their length."""
    rows: list[dict[str, Any]] = [{} for _ in range(len(batch))]  # see above
    for name in batch.keys():  # noqa: SIM118  # a batch iterates over its rows
        column = batch[name]
        entries: Iterable[Any] = column  # see above
        if isinstance(column, Tensor) and column.is_nested:
            values, offsets = values_and_offsets(column)
            entries = torch.split(values, offsets.diff().tolist()) if rows else ()
        for row, value in zip(rows, entries, strict=True):
            row[name] = value.detach().clone() if isinstance(value, Tensor) else value
    return rows
