"""Padding: marked, taken off exactly, and without effect on metrics."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from roll_protocol import DataProto, RowMismatchError, pad_dataproto_to_divisor, unpad_dataproto
from roll_protocol.testing import data_protos


def make_batch(*, rows: int) -> DataProto:
    return DataProto.from_single_dict({"x": torch.arange(rows)}, {"metrics": {"a": 1.0}})


@given(data_protos(), st.integers(1, 9))
def test_unpad_takes_exactly_that_off_which_padding_added(batch: DataProto, divisor: int) -> None:
    padded = batch.pad_to_divisor(divisor)
    assert len(padded) % divisor == 0
    assert len(padded) - len(batch) < divisor
    assert list(padded.is_pad) == [False] * len(batch) + [True] * (len(padded) - len(batch))
    assert padded.unpad() == batch
    assert DataProto(meta_info=padded.meta_info) == DataProto(meta_info=batch.meta_info)


def test_padding_goes_round_the_rows_as_often_as_needed() -> None:
    assert make_batch(rows=3).pad_to_divisor(8)["x"].tolist() == [0, 1, 2, 0, 1, 2, 0, 1]


def test_marks_survive_reordering_cutting_and_joining() -> None:
    padded = make_batch(rows=3).pad_to_divisor(4)
    parts = padded.select_idxs([3, 0, 2, 1]).chunk(3)
    assert DataProto.concat(parts).unpad()["x"].tolist() == [0, 2, 1]


def test_a_batch_without_marks_is_unpadded_by_a_number() -> None:
    result = DataProto.from_single_dict({"y": torch.arange(4)})
    assert result.unpad(1)["y"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("size", [-1, 5])
def test_unpad_refuses_an_impossible_number(size: int) -> None:
    with pytest.raises(RowMismatchError, match=f"cannot lose {size} rows"):
        make_batch(rows=4).unpad(size)


def test_unpad_refuses_a_number_that_differs_from_the_marks() -> None:
    with pytest.raises(RowMismatchError, match="1 rows are marked as padding and 2"):
        make_batch(rows=3).pad_to_divisor(4).unpad(2)


def test_the_functions_with_the_names_of_roll_do_the_same() -> None:
    padded, added = pad_dataproto_to_divisor(make_batch(rows=3), 8)
    assert (len(padded), added) == (8, 5)
    assert unpad_dataproto(padded, added) == make_batch(rows=3)


def test_padding_twice_keeps_the_first_marks() -> None:
    twice = make_batch(rows=3).pad_to_divisor(4).pad_to_divisor(6)
    assert list(twice.is_pad) == [False] * 3 + [True] * 3
    assert twice.unpad() == make_batch(rows=3)
