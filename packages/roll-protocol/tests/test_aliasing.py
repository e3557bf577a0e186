"""Aliasing: which operation shares memory with what; the table in docs/dataproto.md says the same."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given

from roll_protocol import DataProto, object_array
from roll_protocol.testing import data_protos


def make_batch() -> DataProto:
    return DataProto.from_single_dict(
        {"x": torch.arange(4), "f": np.arange(4.0), "o": object_array([[0], [1], [2], [3]])},
        {"step": 1, "l": [1]},
    )


VIEWS: dict[str, Callable[[DataProto], DataProto]] = {
    "slice": lambda batch: batch[0:2],
    "step": lambda batch: batch[::2],
    "row": lambda batch: batch[0],
    "iteration": lambda batch: next(iter(batch)),
    "chunk": lambda batch: batch.chunk(2)[0],
    "split": lambda batch: batch.split(2)[0],
    "select": lambda batch: batch.select(["x"]),
    "to": lambda batch: batch.to("cpu"),
    "mini-batch": lambda batch: next(batch.make_iterator(2)),
    "padding that adds nothing": lambda batch: batch.pad_to_divisor(2),
    "unpad": lambda batch: batch.unpad(1),
    "with_row_ids": lambda batch: batch.with_row_ids(),
}
COPIES: dict[str, Callable[[DataProto], DataProto]] = {
    "reversed slice": lambda batch: batch[::-1][3:],
    "list": lambda batch: batch[[0, 1]],
    "mask": lambda batch: batch[[True, True, False, False]],
    "select_idxs": lambda batch: batch.select_idxs([0]),
    "repeat": lambda batch: batch.repeat(2),
    "concat of one": lambda batch: DataProto.concat([batch]),
    "group": lambda batch: batch.group_by("x")[0],
    "sort": lambda batch: batch.sort_by("x"),
    "shuffled mini-batch": lambda batch: DataProto.concat(list(batch.make_iterator(4, seed=0))).sort_by("x"),
    "padding": lambda batch: batch.pad_to_divisor(3),
    "clone": lambda batch: batch.clone(),
    "deep selection": lambda batch: batch.select(deepcopy=True),
}


@pytest.mark.parametrize("operation", VIEWS.values(), ids=VIEWS.keys())
def test_a_view_shares_tensors_and_arrays_but_no_meta_dictionary(
    operation: Callable[[DataProto], DataProto],
) -> None:
    batch = make_batch()
    part = operation(batch)
    part["x"][0] = 9
    part["f"][0] = 9
    assert batch["x"].tolist() == [9, 1, 2, 3]
    assert batch["f"].tolist() == [9, 1, 2, 3]
    part.meta_info["step"] = 2
    part["new"] = torch.zeros(len(part))
    assert batch.meta_info["step"] == 1
    assert "new" not in batch


@pytest.mark.parametrize("operation", COPIES.values(), ids=COPIES.keys())
def test_a_copy_shares_neither_tensors_nor_arrays(operation: Callable[[DataProto], DataProto]) -> None:
    batch = make_batch()
    part = operation(batch)
    part["x"][0] = 9
    part["f"][0] = 9
    part.meta_info["step"] = 2
    assert batch == make_batch()


def test_objects_are_shared_by_every_operation_but_clone() -> None:
    batch = make_batch()
    assert batch[[0]]["o"][0] is batch["o"][0]
    assert DataProto.concat([batch])["o"][0] is batch["o"][0]
    assert batch.clone()["o"][0] is not batch["o"][0]


def test_union_shares_the_memory_of_the_columns_that_it_takes() -> None:
    batch, other = make_batch(), DataProto.from_single_dict({"y": torch.zeros(4)})
    assert batch.union(other)["y"] is other["y"]


def test_the_constructors_share_memory_with_what_they_are_given() -> None:
    x, f = torch.zeros(2), np.zeros(2)
    batch = DataProto.from_single_dict({"x": x, "f": f})
    assert batch["x"] is x
    assert batch["f"] is f
    assert batch.batch is not None
    assert batch.batch["x"] is x
    assert batch.as_tensordict()["x"] is x


@given(data_protos(min_rows=1))
def test_no_operation_that_is_not_in_place_changes_its_batch(batch: DataProto) -> None:
    before = batch.clone()
    for operation in (
        lambda: batch.chunk(2),
        lambda: batch.repeat(2),
        lambda: batch.select_idxs([0]),
        lambda: batch.pad_to_divisor(4),
        lambda: DataProto.concat([batch, batch]),
        lambda: batch.select(),
        lambda: batch.with_row_ids(),
        lambda: list(batch.make_iterator(1, seed=1)),
        lambda: batch.to("cpu"),
        lambda: batch.describe(),
        lambda: batch.as_tensordict(),
        lambda: batch.batch,
        lambda: batch.non_tensor_batch,
        lambda: before.select().union(batch),
    ):
        operation()
        assert batch == before
