"""Joining: below one another with concat, side by side with union."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from roll_protocol import ColumnError, ConflictError, DataProto, ProtocolError, RowMismatchError, object_array
from roll_protocol.equality import same
from roll_protocol.testing import as_rows, data_protos

NAN = math.nan


def make_batch(
    *, meta: dict[str, Any] | None = None, **columns: Any
) -> DataProto:  # any column, any meta data
    return DataProto.from_single_dict(columns, meta)


@given(data_protos(), st.integers(0, 5), st.integers(0, 5))
def test_concat_is_associative(batch: DataProto, first: int, second: int) -> None:
    one, two, three = batch[:first], batch[first : first + second], batch[first + second :]
    left = DataProto.concat([DataProto.concat([one, two]), three])
    right = DataProto.concat([one, DataProto.concat([two, three])])
    flat = DataProto.concat([one, two, three])
    assert left == right == flat == batch
    assert left.meta_info.get("metrics") == flat.meta_info.get("metrics") == right.meta_info.get("metrics")


@given(data_protos())
def test_concat_of_one_part_is_equal_but_has_memory_of_its_own(batch: DataProto) -> None:
    joined = DataProto.concat([batch])
    assert joined == batch
    assert joined is not batch
    for name in joined.keys():  # noqa: SIM118  # a batch iterates over its rows
        column, source = joined[name], batch[name]
        if isinstance(column, torch.Tensor) and isinstance(source, torch.Tensor) and not column.is_nested:
            assert column.numel() == 0 or column.data_ptr() != source.data_ptr()


def test_concat_of_no_parts_is_an_empty_batch() -> None:
    assert DataProto.concat([]) == DataProto()


def test_concat_of_meta_data_and_rows_keeps_both() -> None:
    joined = DataProto.concat([DataProto(meta_info={"a": 1}), make_batch(x=torch.arange(2), meta={"b": 2})])
    assert len(joined) == 2
    assert joined.meta_info == {"a": 1, "b": 2}


def test_concat_names_the_part_and_the_columns_that_it_lacks() -> None:
    parts = [
        make_batch(x=torch.zeros(1), who=object_array(["a"])),
        make_batch(x=torch.zeros(1), z=torch.zeros(1)),
    ]
    with pytest.raises(ColumnError, match=r"part 1 of 2 lacks \['who'\] and alone has \['z'\]"):
        DataProto.concat(parts)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (torch.zeros(1), torch.zeros(1, dtype=torch.int64)),
        (torch.zeros(1, 2), torch.zeros(1, 3)),
        (np.zeros(1), np.zeros(1, dtype=np.int64)),
        (np.zeros((1, 2)), np.zeros((1, 3))),
        (torch.zeros(1), np.zeros(1)),
        (torch.zeros(1, 1), torch.nested.nested_tensor_from_jagged(torch.zeros(2), torch.tensor([0, 2]))),
    ],
)
def test_concat_converts_nothing_silently(one: Any, two: Any) -> None:  # any column
    with pytest.raises(ColumnError, match="x"):
        DataProto.concat([make_batch(x=one), make_batch(x=two)])


def test_concat_fills_ragged_last_dimensions_with_the_stated_value() -> None:
    parts = [make_batch(x=torch.ones(1, 1)), make_batch(x=torch.ones(2, 3))]
    assert DataProto.concat(parts, pad=-1)["x"].tolist() == [[1, -1, -1], [1, 1, 1], [1, 1, 1]]
    assert DataProto.concat(parts, pad={"x": 0})["x"].tolist() == [[1, 0, 0], [1, 1, 1], [1, 1, 1]]
    with pytest.raises(ColumnError, match=r"concat\(parts, pad=\{'x': value\}\)"):
        DataProto.concat(parts, pad={"y": 0})


def test_concat_joins_jagged_columns_of_any_lengths() -> None:
    rows = [{"x": torch.tensor([1, 2])}, {"x": torch.tensor([3])}, {"x": torch.tensor([], dtype=torch.int64)}]
    batch = DataProto.from_rows(rows)
    joined = DataProto.concat([batch[:1], batch[1:], batch])
    assert [row["x"].tolist() for row in as_rows(joined)] == [[1, 2], [3], [], [1, 2], [3], []]


def test_concat_keeps_meta_entries_of_every_part() -> None:
    assert DataProto.concat([DataProto(meta_info={"a": 1}), DataProto(meta_info={"b": 2})]).meta_info == {
        "a": 1,
        "b": 2,
    }


def test_concat_compares_tensors_arrays_and_nan_in_meta_data_by_value() -> None:
    def meta() -> dict[str, Any]:  # any meta data
        return {"t": torch.ones(3), "a": np.ones(2), "n": NAN, "d": {"x": [torch.ones(2)]}}

    assert same(
        DataProto.concat([DataProto(meta_info=meta()), DataProto(meta_info=meta())]).meta_info, meta()
    )


def test_meta_entries_that_differ_are_an_error_with_both_values_unless_a_rule_says_which() -> None:
    parts = [DataProto(meta_info={"t": {"gen": 73.94637}}), DataProto(meta_info={"t": {"gen": 73.94638}})]
    with pytest.raises(ConflictError, match=r"73.94637.*73.94638.*meta=\{'t': 'first'\}"):
        DataProto.concat(parts)
    assert DataProto.concat(parts, meta={"t": "first"}).meta_info == {"t": {"gen": 73.94637}}
    assert DataProto.concat(parts, meta="last").meta_info == {"t": {"gen": 73.94638}}
    assert DataProto.concat(parts, meta={"t": "list"}).meta_info == {
        "t": [{"gen": 73.94637}, {"gen": 73.94638}]
    }
    with pytest.raises(ProtocolError, match="'newest'"):
        DataProto.concat(parts, meta="newest")  # type: ignore[arg-type]  # what is tested


def test_concat_refuses_to_forget_the_identity_of_some_rows() -> None:
    with pytest.raises(RowMismatchError, match=r"parts \[1\] have no row_ids"):
        DataProto.concat([make_batch(x=torch.zeros(1)).with_row_ids(), make_batch(x=torch.zeros(1))])


def test_concat_refuses_what_is_no_batch() -> None:
    with pytest.raises(ProtocolError, match="concat takes DataProtos, not dict"):
        DataProto.concat([{}])  # type: ignore[list-item]  # what is tested


@given(data_protos(min_rows=1), st.data())
def test_union_of_disjoint_columns_commutes_and_is_idempotent(batch: DataProto, data: st.DataObject) -> None:
    tensors = [name for name in batch.keys() if isinstance(batch[name], torch.Tensor)]  # noqa: SIM118  # see above
    arrays = [name for name in batch.keys() if name not in tensors]  # noqa: SIM118  # see above
    mine = data.draw(st.sets(st.sampled_from([*tensors, *arrays])))
    left = batch.select([n for n in tensors if n in mine], [n for n in arrays if n in mine])
    right = batch.select([n for n in tensors if n not in mine], [n for n in arrays if n not in mine])
    assert left.clone().union(right) == batch
    assert right.clone().union(left) == batch
    assert batch.clone().union(batch) == batch


def test_union_works_in_place_and_returns_the_batch() -> None:
    batch = make_batch(x=torch.zeros(2))
    assert batch.union(make_batch(y=torch.ones(2))) is batch
    assert batch.keys() == ["x", "y"]


def test_union_takes_equal_columns_nan_and_nested_objects_included() -> None:
    def columns() -> dict[str, Any]:  # any column
        nested = object_array([{"a": np.array([1.0, NAN])}, [torch.ones(2), NAN]])
        return {
            "x": torch.tensor([NAN, 1.0]),
            "cube": object_array([np.zeros((2, 2, 2)), None]),
            "nested": nested,
        }

    assert make_batch(**columns()).union(make_batch(**columns())) == make_batch(**columns())


@pytest.mark.parametrize(
    ("other", "error"),
    [
        (make_batch(x=torch.ones(2), new=torch.ones(2)), "column 'x' differs"),
        (make_batch(x=torch.zeros(2, dtype=torch.int64), new=torch.ones(2)), "column 'x' differs"),
        (make_batch(new=torch.ones(2), o=object_array([1, 2])), "column 'o' differs"),
        (make_batch(new=torch.ones(2), meta={"step": 2, "other": 1}), "meta entry 'step'"),
        (make_batch(new=torch.ones(3)), "this one has 2, the other 3"),
    ],
)
def test_union_that_fails_changes_nothing(other: DataProto, error: str) -> None:
    batch = make_batch(x=torch.zeros(2), o=object_array([1, 1]), meta={"step": 1})
    before, others = batch.clone(), other.clone()
    with pytest.raises((ConflictError, RowMismatchError), match=error):
        batch.union(other)
    assert batch == before
    assert other == others


def test_union_by_position_of_rows_with_other_identities_is_an_error() -> None:
    batch = make_batch(x=torch.arange(3)).with_row_ids(["a", "b", "c"])
    values = make_batch(v=torch.tensor([10, 11, 12])).with_row_ids(["a", "b", "c"])
    batch.reorder([2, 0, 1])
    with pytest.raises(RowMismatchError, match=r"row 0 is .*'c'.* here and .*'a'.* align=True"):
        batch.union(values)
    assert batch.union(values, align=True)["v"].tolist() == [12, 10, 11]


def test_union_by_identity_needs_one_row_for_each() -> None:
    batch = make_batch(x=torch.arange(2)).with_row_ids([1, 2])
    for ids, message in (([1, 3], "lacks 1 rows"), ([1, 1], "some repeat")):
        with pytest.raises(RowMismatchError, match=message):
            batch.union(make_batch(v=torch.arange(2)).with_row_ids(ids), align=True)
    with pytest.raises(RowMismatchError, match="needs row_ids on both"):
        batch.union(make_batch(v=torch.arange(2)), align=True)
    assert batch == make_batch(x=torch.arange(2)).with_row_ids([1, 2])


def test_union_with_a_batch_without_tensors_or_without_rows_keeps_both_sides() -> None:
    batch = make_batch(o=object_array([1, 2]))
    assert batch.union(make_batch(x=torch.zeros(2))).keys() == ["x", "o"]
    assert len(DataProto(meta_info={"a": 1}).union(batch)) == 2
    assert batch.union(DataProto(meta_info={"b": 1})).meta_info == {"b": 1}


def test_a_union_into_one_part_leaves_its_sisters_alone() -> None:
    one, two = make_batch(x=torch.zeros(2), meta={"step": 1}).chunk(2)
    one.union(make_batch(y=torch.zeros(1), meta={"extra": 1}))
    assert two.keys() == ["x"]
    assert two.meta_info == {"step": 1}
