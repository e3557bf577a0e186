"""Rows: indexing, cutting, repeating and reordering agree with plain lists."""

import sys
from collections.abc import Callable
from types import FrameType

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from roll_protocol import DataProto, ProtocolError, RowIndexError, RowMismatchError, object_array
from roll_protocol.equality import same
from roll_protocol.testing import as_rows, data_protos


def make_batch(*, rows: int) -> DataProto:
    return DataProto.from_single_dict(
        {"x": torch.arange(rows), "name": object_array([f"r{i}" for i in range(rows)])}
    )


@given(data_protos(), st.integers(1, 9))
def test_concat_of_the_parts_of_chunk_is_the_batch_for_every_number_of_parts(
    batch: DataProto, parts: int
) -> None:
    chunks = batch.chunk(parts)
    sizes = [len(chunk) for chunk in chunks]
    assert DataProto.concat(chunks) == batch
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == len(batch)
    assert len(sizes) == parts


def test_chunk_cuts_tensors_and_objects_at_the_same_rows() -> None:
    parts = make_batch(rows=124).chunk(15)
    assert [len(part) for part in parts] == [9] * 4 + [8] * 11
    assert all([f"r{int(x)}" for x in part["x"]] == list(part["name"]) for part in parts)


def test_chunk_of_two_rows_into_four_gives_two_empty_parts_with_the_same_columns() -> None:
    parts = make_batch(rows=2).chunk(4)
    assert [len(part) for part in parts] == [1, 1, 0, 0]
    assert parts[3].keys() == ["x", "name"]


@given(data_protos(), st.integers(1, 9))
def test_split_gives_full_parts_and_one_smaller_last_part(batch: DataProto, size: int) -> None:
    parts = batch.split(size)
    assert [len(part) for part in parts] == [size] * (len(batch) // size) + [len(batch) % size] * bool(
        len(batch) % size
    )
    assert not parts or DataProto.concat(parts) == batch


@given(data_protos(), st.integers(-7, 7))
def test_a_row_number_means_what_it_means_in_a_list(batch: DataProto, row: int) -> None:
    rows = as_rows(batch)
    if -len(rows) <= row < len(rows):
        assert same(as_rows(batch[row]), [rows[row]])
        assert same(as_rows(batch[torch.tensor(row)]), [rows[row]])
    else:
        with pytest.raises(IndexError, match=f"row {row} is outside a batch of {len(rows)} rows"):
            batch[row]


bound = st.none() | st.integers(-7, 7)


@given(data_protos(), bound, bound, st.sampled_from([None, 1, 2, 3, -1, -2]))
def test_a_slice_means_what_it_means_in_a_list(
    batch: DataProto, start: int | None, stop: int | None, step: int | None
) -> None:
    part = batch[start:stop:step]
    assert same(as_rows(part), as_rows(batch)[start:stop:step])
    assert len(part) == len(as_rows(batch)[start:stop:step])
    assert batch.slice(start, stop, step) == part


@given(data_protos(min_rows=1), st.data())
def test_lists_arrays_tensors_and_masks_choose_the_rows_that_they_name(
    batch: DataProto, data: st.DataObject
) -> None:
    rows = as_rows(batch)
    index = data.draw(st.lists(st.integers(-len(rows), len(rows) - 1), max_size=6))
    expected = [rows[place] for place in index]
    frozen = np.array(index[::-1], dtype=np.int64)[::-1]
    frozen.flags.writeable = False
    for form in (index, np.array(index, dtype=np.int32), torch.tensor(index, dtype=torch.int64), frozen):
        assert same(as_rows(batch[form]), expected)
    mask = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    kept = [row for row, keep in zip(rows, mask, strict=True) if keep]
    for chosen in (mask, np.array(mask), torch.tensor(mask)):
        assert same(as_rows(batch[chosen]), kept)


@pytest.mark.parametrize("index", [[4], [-5], [0, 9], [True, False], [0.5], [[0, 1]], True, "y", None])
def test_an_index_that_names_no_row_is_an_error(index: object) -> None:
    with pytest.raises((RowIndexError, KeyError)):
        make_batch(rows=4)[index]  # type: ignore[call-overload]  # what is tested


@given(data_protos())
def test_iterating_gives_every_row_once_and_ends(batch: DataProto) -> None:
    assert same([row for part in batch for row in as_rows(part)], as_rows(batch))
    assert [len(row) for row in batch] == [1] * len(batch)


def test_in_tells_whether_a_column_is_there() -> None:
    batch = make_batch(rows=3)
    assert "x" in batch
    assert "name" in batch
    assert "y" not in batch
    assert 0 not in batch


@given(data_protos(), st.data())
def test_a_permutation_and_its_inverse_give_the_batch_back(batch: DataProto, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(batch))))
    inverse = np.argsort(np.array(order, dtype=np.int64))
    shuffled = batch.select_idxs(order)
    assert shuffled.select_idxs(inverse) == batch
    copy = batch.clone()
    assert copy.reorder(torch.tensor(order, dtype=torch.int64)) is copy
    assert copy == shuffled


@pytest.mark.parametrize("order", [[0, 1], [0, 0, 1], [0, 1, 2, 2]])
def test_reorder_refuses_what_is_no_permutation(order: list[int]) -> None:
    batch = make_batch(rows=3)
    with pytest.raises(RowIndexError, match="reorder takes a permutation of 3 rows"):
        batch.reorder(order)
    assert batch == make_batch(rows=3)


@given(data_protos(), st.integers(0, 3))
def test_repeat_interleaves_or_tiles_as_numpy_does(batch: DataProto, times: int) -> None:
    rows = as_rows(batch)
    assert same(as_rows(batch.repeat(times)), [row for row in rows for _ in range(times)])
    assert same(as_rows(batch.repeat(times, interleave=False)), rows * times)
    if times:
        assert batch.repeat(times)[::times] == batch


@pytest.mark.parametrize("call", ["chunk(0)", "split(0)", "repeat(-1)"])
def test_impossible_numbers_of_parts_are_errors(call: str) -> None:
    name, number = call.rstrip(")").split("(")
    with pytest.raises(ProtocolError, match=number):
        getattr(make_batch(rows=2), name)(int(number))


def test_row_ids_follow_every_operation_on_rows() -> None:
    batch = make_batch(rows=4).with_row_ids([7, 8, 9, 10])
    assert list(batch[::-1].row_ids) == [10, 9, 8, 7]  # type: ignore[arg-type]  # it has ids
    assert list(batch.repeat(2)[:3].row_ids) == [7, 7, 8]  # type: ignore[arg-type]  # it has ids
    assert list(DataProto.concat(batch.chunk(3)).row_ids) == [7, 8, 9, 10]  # type: ignore[arg-type]  # it has ids
    assert list(batch.reorder([3, 0, 1, 2]).row_ids) == [10, 7, 8, 9]  # type: ignore[arg-type]  # it has ids


def test_new_row_ids_differ_between_batches() -> None:
    one, two = make_batch(rows=50).with_row_ids(), make_batch(rows=50).with_row_ids()
    assert one.row_ids is not None
    assert two.row_ids is not None
    assert len({*one.row_ids.tolist(), *two.row_ids.tolist()}) == 100


def test_row_ids_and_marks_that_were_read_cannot_change_other_parts() -> None:
    batch = make_batch(rows=3).with_row_ids([1, 2, 3]).pad_to_divisor(2)
    batch.is_pad[0] = True
    assert batch.is_pad.tolist() == [False, False, False, True]
    ids = make_batch(rows=3).with_row_ids([1, 2, 3]).row_ids
    assert ids is not None
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = 9


def test_row_ids_of_another_length_are_refused() -> None:
    with pytest.raises(RowMismatchError, match="row_ids are 3 integers or strings"):
        make_batch(rows=3).with_row_ids([1, 2])


def test_a_batch_of_meta_data_only_has_no_rows_and_is_cut_into_parts_of_meta_data() -> None:
    batch = DataProto(meta_info={"step": 3})
    assert len(batch) == 0
    assert not batch
    assert [part.meta_info for part in batch.chunk(2)] == [{"step": 3}, {"step": 3}]
    assert batch.to("cpu") == batch


def python_calls(function: Callable[[], object]) -> int:
    """Count the Python functions that are entered while ``function`` runs."""
    count = 0

    def see(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "operation",
    [
        lambda batch: batch.chunk(4),
        lambda batch: DataProto.concat([batch, batch]),
        lambda batch: batch.select(["x"], ["name"]),
        lambda batch: batch.repeat(2),
        lambda batch: batch[::2],
        lambda batch: batch.reorder(np.arange(len(batch))[::-1]),
        lambda batch: batch.pad_to_divisor(7),
    ],
)
def test_no_operation_on_rows_loops_over_them_in_python(operation: Callable[[DataProto], object]) -> None:
    few, many = make_batch(rows=10), make_batch(rows=20_000)
    operation(make_batch(rows=10))
    assert python_calls(lambda: operation(many)) < python_calls(lambda: operation(few)) + 50
