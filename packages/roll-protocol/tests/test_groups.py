"""Groups: typed keys, stable order, every row in one group."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from roll_protocol import ColumnError, DataProto, object_array
from roll_protocol.equality import same
from roll_protocol.testing import as_rows, data_protos


def groups_of(keys: str | list[str], **columns: Any) -> dict[Any, list[int]]:  # any column, any key
    rows = len(next(iter(columns.values())))
    batch = DataProto.from_single_dict({**columns, "row": torch.arange(rows)})
    return {key: group["row"].tolist() for key, group in batch.group_by(keys).items()}


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", "1"])), max_size=12))
def test_groups_partition_the_rows_by_equal_keys_in_the_order_of_first_appearance(
    keys: list[tuple[int, str]],
) -> None:
    batch = DataProto.from_single_dict(
        {
            "n": torch.tensor([n for n, _ in keys], dtype=torch.int64),
            "s": object_array([s for _, s in keys]),
            "row": torch.arange(len(keys)),
        }
    )
    expected: dict[tuple[int, str], list[int]] = {}
    for row, key in enumerate(keys):
        expected.setdefault(key, []).append(row)
    groups = batch.group_by(["n", "s"])
    assert {key: group["row"].tolist() for key, group in groups.items()} == expected
    assert list(groups) == list(expected)


@given(data_protos(min_rows=1, with_ragged=False))
def test_the_groups_of_any_column_hold_each_row_once(batch: DataProto) -> None:
    batch["row"] = torch.arange(len(batch))
    for name in batch.keys():  # noqa: SIM118  # a batch iterates over its rows
        try:
            groups = batch.group_by(name)
        except ColumnError:
            assert any(isinstance(value, dict) for value in batch[name])
            continue
        joined = DataProto.concat(list(groups.values()))
        assert joined.sort_by("row") == batch
        for group in groups.values():
            assert group["row"].tolist() == sorted(group["row"].tolist())


def test_one_and_the_text_one_are_two_groups() -> None:
    assert groups_of("k", k=object_array([1, "1", 1, None])) == {1: [0, 2], "1": [1], None: [3]}


def test_values_of_several_columns_do_not_run_into_each_other() -> None:
    groups = groups_of(["a", "b"], a=object_array(["x|y", "x"]), b=object_array(["z", "y|z"]))
    assert groups == {("x|y", "z"): [0], ("x", "y|z"): [1]}


def test_long_and_close_values_are_told_apart() -> None:
    x = torch.zeros(3, 3000)
    x[1, 1500] = 1
    assert list(groups_of("x", x=x).values()) == [[0, 2], [1]]
    assert len(groups_of("x", x=torch.tensor([1.0, 1.0 + 1e-12], dtype=torch.float64))) == 2


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float32, torch.complex64, torch.bool, torch.uint8]
)
def test_every_dtype_can_be_a_key(dtype: torch.dtype) -> None:
    assert list(groups_of("x", x=torch.tensor([1, 0, 1]).to(dtype)).values()) == [[0, 2], [1]]


def test_nan_equals_nan_and_zero_equals_minus_zero() -> None:
    nan = math.nan
    assert list(groups_of("x", x=torch.tensor([nan, 0.0, nan, -0.0])).values()) == [[0, 2], [1, 3]]
    assert list(groups_of("x", x=object_array([nan, 1, float("nan")])).values()) == [[0, 2], [1]]


def test_rows_of_several_numbers_arrays_and_lists_are_keys_as_tuples() -> None:
    assert groups_of("x", x=torch.tensor([[1, 2], [1, 2], [3, 4]])) == {(1, 2): [0, 1], (3, 4): [2]}
    assert groups_of("x", x=object_array([[1, [2]], np.array([5]), [1, [2]]])) == {
        (1, (2,)): [0, 2],
        (5,): [1],
    }
    assert groups_of("x", x=np.array(["b", "a", "b"])) == {"b": [0, 2], "a": [1]}
    assert groups_of("x", x=torch.zeros(2, 0)) == {(): [0, 1]}


def test_large_negative_and_unsigned_numbers_are_keys() -> None:
    assert groups_of("x", x=torch.tensor([-(2**62), 2**62, -(2**62)])) == {-(2**62): [0, 2], 2**62: [1]}
    assert groups_of("x", x=np.array([2**64 - 1, 0], dtype=np.uint64)) == {2**64 - 1: [0], 0: [1]}


def test_no_rows_have_no_groups() -> None:
    assert groups_of("x", x=torch.zeros(0)) == {}


def test_what_cannot_be_a_key_is_an_error_that_names_the_column() -> None:
    with pytest.raises(ColumnError, match="column 'x' holds a dict"):
        groups_of("x", x=object_array([{}]))
    with pytest.raises(ColumnError, match="column 'x' is jagged"):
        groups_of("x", x=torch.nested.nested_tensor_from_jagged(torch.zeros(2), torch.tensor([0, 2])))
    with pytest.raises(ColumnError, match="one column or more"):
        groups_of([], x=torch.zeros(1))


@given(st.lists(st.tuples(st.integers(0, 3), st.text(max_size=1)), max_size=10), st.booleans())
def test_sorting_is_stable_and_lexicographic(keys: list[tuple[int, str]], descending: bool) -> None:
    rows = [{"n": n, "s": s, "row": row} for row, (n, s) in enumerate(keys)]
    batch = DataProto.from_rows(rows)
    if not rows:
        return
    ordered = as_rows(batch.sort_by(["n", "s"], descending=descending))
    expected = sorted(rows, key=lambda row: (row["n"], row["s"]), reverse=False)
    if descending:
        expected = sorted(rows, key=lambda row: (row["n"], row["s"]), reverse=True)
    assert [int(row["row"]) for row in ordered] == [row["row"] for row in expected]


def test_values_without_an_order_cannot_be_sorted() -> None:
    batch = DataProto.from_single_dict({"o": object_array([1, "a"]), "x": torch.zeros(2, 2)})
    with pytest.raises(ColumnError, match="'o' has values without an order"):
        batch.sort_by("o")
    with pytest.raises(ColumnError, match="'x' has several values a row"):
        batch.sort_by("x")


def test_groups_share_no_memory_with_the_batch() -> None:
    batch = DataProto.from_single_dict({"x": torch.zeros(4), "k": torch.tensor([0, 1, 0, 1])})
    batch.group_by("k")[0]["x"][:] = 7
    assert same(batch["x"], torch.zeros(4))
