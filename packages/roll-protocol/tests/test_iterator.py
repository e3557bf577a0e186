"""Mini-batches: permutations by seed, resumable, and a stated policy for the remainder."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from roll_protocol import DataProto, ProtocolError, RowMismatchError
from roll_protocol.iterator import Remainder
from roll_protocol.testing import data_protos


def make_batch(*, rows: int) -> DataProto:
    return DataProto.from_single_dict({"x": torch.arange(rows)}, {"step": 1})


def values(parts: list[DataProto]) -> list[list[int]]:
    return [part["x"].tolist() for part in parts]


@given(st.integers(0, 12), st.integers(1, 5), st.integers(0, 3), st.integers(0, 2**32))
def test_every_epoch_is_a_permutation_and_a_seed_repeats_itself(
    rows: int, size: int, epochs: int, seed: int
) -> None:
    batch = make_batch(rows=rows)
    parts = values(list(batch.make_iterator(size, epochs, seed=seed, remainder="keep")))
    per_epoch = -(-rows // size)
    for epoch in range(epochs):
        seen = [x for part in parts[epoch * per_epoch : (epoch + 1) * per_epoch] for x in part]
        assert sorted(seen) == list(range(rows))
    assert parts == values(list(batch.make_iterator(size, epochs, seed=seed, remainder="keep")))


def test_epochs_and_seeds_shuffle_differently() -> None:
    batch = make_batch(rows=32)
    orders = [tuple(part["x"].tolist()) for seed in (0, 1) for part in batch.make_iterator(32, 2, seed=seed)]
    assert len(set(orders)) == 4


def test_without_a_seed_rows_keep_their_order_and_share_memory() -> None:
    batch = make_batch(rows=4)
    first, second = batch.make_iterator(2)
    assert values([first, second]) == [[0, 1], [2, 3]]
    first["x"][0] = 9
    assert batch["x"].tolist() == [9, 1, 2, 3]


@pytest.mark.parametrize(("remainder", "sizes"), [("keep", [2, 2, 1, 2, 2, 1]), ("drop", [2, 2, 2, 2])])
def test_rows_that_fill_no_batch_are_kept_or_dropped_as_asked(remainder: Remainder, sizes: list[int]) -> None:
    steps = make_batch(rows=5).make_iterator(2, 2, remainder=remainder)
    assert len(steps) == len(sizes)
    assert [len(part) for part in steps] == sizes


def test_rows_that_fill_no_batch_are_an_error_by_default() -> None:
    with pytest.raises(RowMismatchError, match="5 rows do not divide into mini-batches of 2"):
        make_batch(rows=5).make_iterator(2)


@given(data_protos(min_rows=1), st.integers(1, 3), st.data())
def test_an_iterator_goes_on_where_another_stood(batch: DataProto, size: int, data: st.DataObject) -> None:
    whole = list(batch.make_iterator(size, 3, seed=5, remainder="keep"))
    steps = batch.make_iterator(size, 3, seed=5, remainder="keep")
    stop = data.draw(st.integers(0, len(whole)))
    for _ in range(stop):
        next(steps)
    assert steps.position == stop
    resumed = batch.make_iterator(size, 3, seed=5, remainder="keep", position=steps.position)
    assert list(resumed) == whole[stop:]
    resumed.position = 0
    assert list(resumed) == whole


def test_a_position_outside_is_an_error() -> None:
    steps = make_batch(rows=4).make_iterator(2)
    with pytest.raises(ProtocolError, match="2 mini-batches has no position 3"):
        steps.position = 3


@pytest.mark.parametrize(("size", "epochs"), [(0, 1), (1, -1)])
def test_impossible_sizes_are_errors(size: int, epochs: int) -> None:
    with pytest.raises(ProtocolError, match="cannot be made"):
        make_batch(rows=2).make_iterator(size, epochs)


def test_reordering_the_batch_meanwhile_does_not_mix_up_an_epoch() -> None:
    batch = make_batch(rows=6)
    steps = batch.make_iterator(2, seed=1)
    seen = next(steps)["x"].tolist()
    batch.reorder(np.arange(5, -1, -1))
    seen += [x for part in steps for x in part["x"].tolist()]
    assert sorted(seen) == [0, 1, 2, 3, 4, 5]


def test_each_mini_batch_has_meta_data_of_its_own() -> None:
    batch = make_batch(rows=4)
    for part in batch.make_iterator(2):
        part.meta_info["step"] = 99
    assert batch.meta_info == {"step": 1}
