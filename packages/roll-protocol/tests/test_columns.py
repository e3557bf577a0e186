"""Columns: every way to write one checks it, and constructors take what they say."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from tensordict import TensorDict

from roll_protocol import ColumnError, ColumnNotFoundError, DataProto, ProtocolError, object_array
from roll_protocol.equality import same
from roll_protocol.testing import as_rows, data_protos


def make_batch() -> DataProto:
    return DataProto.from_single_dict({"x": torch.arange(3), "o": object_array(["a", "b", "c"])})


def set_item(batch: DataProto, name: str, value: Any) -> None:  # any value, as a user may try
    batch[name] = value


def set_in_update(batch: DataProto, name: str, value: Any) -> None:  # see set_item
    batch.update({name: value})


def set_in_arrays(batch: DataProto, name: str, value: Any) -> None:  # see set_item
    batch.non_tensor_batch[name] = value


def set_in_arrays_update(batch: DataProto, name: str, value: Any) -> None:  # see set_item
    batch.non_tensor_batch.update({name: value})


def set_all_arrays(batch: DataProto, name: str, value: Any) -> None:  # see set_item
    batch.non_tensor_batch = {name: value}


def set_in_tensordict(batch: DataProto, name: str, value: Any) -> None:  # see set_item
    assert batch.batch is not None
    batch.batch[name] = value
    len(batch)


def set_tensordict(batch: DataProto, name: str, value: Any) -> None:  # see set_item
    batch.batch = TensorDict({name: value}, batch_size=value.shape[:1])


def build(batch: DataProto, name: str, value: Any) -> None:  # see set_item
    DataProto(batch=batch.batch, non_tensor_batch={name: value})


def build_from_one_dictionary(batch: DataProto, name: str, value: Any) -> None:  # see set_item
    DataProto.from_single_dict({"x": batch["x"], name: value})


def build_from_two_dictionaries(batch: DataProto, name: str, value: Any) -> None:  # see set_item
    DataProto.from_dict({"x": torch.arange(len(batch))}, {name: value})


WRITES = [
    set_item,
    set_in_update,
    set_in_arrays,
    set_in_arrays_update,
    set_all_arrays,
    build,
    build_from_one_dictionary,
    build_from_two_dictionaries,
]


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
@pytest.mark.parametrize("value", [np.zeros(4), object_array([1, 2]), np.array(1.0), None, "abc", 7, {}])
def test_every_write_refuses_what_is_no_column_of_three_rows(
    write: Callable[[DataProto, str, object], None], value: object
) -> None:
    batch = make_batch()
    with pytest.raises(ProtocolError, match="new"):
        write(batch, "new", value)
    assert batch == make_batch()


@pytest.mark.parametrize("write", [set_item, set_in_update, build_from_one_dictionary])
@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(4),
        torch.tensor(1.0),
        torch.eye(3).to_sparse(),
        TensorDict({}, batch_size=[3]),
        [1, 2, 3],
    ],
)
def test_every_write_refuses_tensors_that_are_no_column(
    write: Callable[[DataProto, str, object], None], value: object
) -> None:
    batch = make_batch()
    with pytest.raises(ColumnError, match="new"):
        write(batch, "new", value)
    assert batch == make_batch()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_that_are_not_jagged_are_refused_with_the_way_out() -> None:
    nested = torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2), torch.zeros(3)])
    with pytest.raises(ColumnError, match="nested_tensor_from_jagged"):
        make_batch()["new"] = nested
    jagged = torch.nested.nested_tensor_from_jagged(torch.zeros(3), torch.tensor([0, 1, 2, 3]))
    with pytest.raises(ColumnError, match="jagged with 2 batch dimensions"):
        DataProto.from_dict({"x": torch.zeros(3, 2), "j": jagged}, num_batch_dims=2)


@pytest.mark.parametrize("write", [set_in_tensordict, set_tensordict])
def test_a_tensor_under_the_name_of_an_array_is_reported(
    write: Callable[[DataProto, str, object], None],
) -> None:
    batch = make_batch()
    with pytest.raises(ColumnError, match="column 'o' is in batch and in non_tensor_batch"):
        write(batch, "o", torch.zeros(3))


def test_an_array_under_the_name_of_a_tensor_is_reported_by_the_next_operation() -> None:
    batch = make_batch()
    batch.non_tensor_batch["x"] = np.zeros(3)
    with pytest.raises(ColumnError, match="column 'x' is in batch and in non_tensor_batch"):
        batch.chunk(2)


def test_a_tensordict_of_another_row_count_is_refused_and_changes_nothing() -> None:
    batch = make_batch()
    with pytest.raises(ColumnError, match="column 'o' has 3 rows and the batch has 2"):
        batch.batch = TensorDict({"x": torch.zeros(2)}, batch_size=[2])
    assert batch == make_batch()


def test_what_a_tensordict_can_hold_and_a_batch_cannot_is_reported_by_the_next_operation() -> None:
    batch = make_batch()
    assert batch.batch is not None
    batch.batch["nested"] = TensorDict({"a": torch.zeros(3)}, batch_size=[3])
    with pytest.raises(ColumnError, match=r"'nested' is a TensorDict .* td.flatten_keys"):
        len(batch)


def test_writes_through_batch_and_non_tensor_batch_are_part_of_the_batch() -> None:
    batch = make_batch()
    assert isinstance(batch.batch, TensorDict)
    batch.batch["y"] = torch.ones(3)
    batch.batch["x"] += 1
    batch.non_tensor_batch["f"] = np.arange(3.0)
    del batch.non_tensor_batch["o"]
    assert batch == DataProto.from_single_dict(
        {"x": torch.arange(1, 4), "y": torch.ones(3), "f": np.arange(3.0)}
    )


def test_setting_a_column_moves_it_between_tensors_and_arrays() -> None:
    batch = make_batch()
    batch["x"] = np.zeros(3)
    batch["o"] = torch.zeros(3)
    assert batch.batch is not None
    assert list(batch.batch.keys()) == ["o"]
    assert list(batch.non_tensor_batch) == ["x"]


def test_the_setters_take_over_whole_dictionaries() -> None:
    batch = make_batch()
    batch.non_tensor_batch = {"f": np.arange(3.0)}
    batch.batch = TensorDict({"y": torch.ones(3)}, batch_size=[3])
    assert batch.keys() == ["y", "f"]
    batch.batch = None
    assert batch.keys() == ["f"]
    assert batch.batch is None


def test_the_first_column_of_a_batch_of_meta_data_sets_the_row_count() -> None:
    batch = DataProto(meta_info={"a": 1})
    batch["x"] = torch.zeros(4, 2)
    assert len(batch) == 4
    other = DataProto()
    other.non_tensor_batch["o"] = object_array([1, 2])
    assert len(other) == 2
    with pytest.raises(ColumnError, match="has 3 rows and the batch has 2"):
        other.non_tensor_batch["p"] = object_array([1, 2, 3])


def test_reading_and_deleting_unknown_columns_name_the_known_ones() -> None:
    batch = make_batch()
    with pytest.raises(ColumnNotFoundError, match=r"no column named 'y'; the batch has \['x', 'o'\]"):
        batch["y"]
    with pytest.raises(KeyError):
        del batch["y"]
    del batch["x"]
    assert batch.keys() == ["o"]


def test_update_writes_all_columns_or_none() -> None:
    batch = make_batch()
    with pytest.raises(ColumnError, match="bad"):
        batch.update({"good": torch.zeros(3), "bad": torch.zeros(2)})
    assert batch.keys() == ["x", "o"]


def test_a_name_must_be_a_string() -> None:
    with pytest.raises(ColumnError, match="named by a non-empty string, not 3"):
        DataProto.from_single_dict({3: torch.zeros(2)})  # type: ignore[dict-item]  # what is tested


def test_from_dict_makes_one_object_a_row_and_leaves_the_dictionary_alone() -> None:
    given_ones: dict[str, Any] = {
        "same": [[1, 2], [3, 4]],
        "ragged": ((1,), (2, 3)),
        "real": np.zeros((2, 3)),
    }
    before = dict(given_ones)
    batch = DataProto.from_dict(None, given_ones)
    assert batch["same"].shape == (2,)
    assert batch["ragged"].dtype == object
    assert batch["real"].shape == (2, 3)
    assert given_ones == before
    assert batch.batch is None


def test_from_dict_with_two_batch_dimensions_keeps_both_through_every_operation() -> None:
    batch = DataProto.from_dict(
        {"x": torch.arange(24).reshape(4, 3, 2), "y": torch.zeros(4, 3)}, num_batch_dims=2
    )
    assert batch.batch is not None
    assert batch.batch.batch_size == (4, 3)
    part = DataProto.concat(batch[1:].chunk(2)).select_idxs([0, 2])
    assert part.batch is not None
    assert part.batch.batch_size == (2, 3)
    with pytest.raises(ColumnError, match=r"batch dimensions \(4, 3\)"):
        batch["z"] = torch.zeros(4, 2)
    with pytest.raises(ColumnError, match="lacks the first 2 dimension"):
        DataProto.from_dict({"x": torch.zeros(4)}, num_batch_dims=2)
    with pytest.raises(ColumnError, match="'b'"):
        DataProto.from_dict({"a": torch.zeros(4, 3), "b": torch.zeros(4, 2)}, num_batch_dims=2)
    with pytest.raises(ProtocolError, match="1 or more, not 0"):
        DataProto.from_dict({"a": torch.zeros(4)}, num_batch_dims=0)


def test_one_name_in_both_dictionaries_is_an_error() -> None:
    with pytest.raises(ColumnError, match="column 'x' is in tensors and in non_tensors"):
        DataProto.from_dict({"x": torch.zeros(2)}, {"x": [1, 2]})


@given(data_protos(min_rows=1, with_ragged=False))
def test_from_rows_undoes_as_rows_up_to_the_kind_of_column(batch: DataProto) -> None:
    again = DataProto.from_rows(as_rows(batch))
    assert len(again) == len(batch)
    for row, expected in zip(as_rows(again), as_rows(batch), strict=True):
        for name, value in expected.items():
            plain = value.tolist() if isinstance(value, np.generic) else value
            got = row[name]
            got = (
                got.tolist()
                if isinstance(got, (torch.Tensor, np.generic)) and not isinstance(plain, torch.Tensor)
                else got
            )
            assert same(
                got, plain.tolist() if isinstance(plain, np.ndarray) and isinstance(got, list) else plain
            )


def test_from_rows_stacks_tensors_and_numbers_and_keeps_the_rest_as_objects() -> None:
    rows = [
        {"x": torch.ones(2), "n": 1, "f": 0.5, "s": "a", "j": torch.ones(1), "m": 1},
        {"x": torch.zeros(2), "n": 2, "f": 1.5, "s": "b", "j": torch.ones(3), "m": None},
    ]
    batch = DataProto.from_rows(rows, {"step": 1})
    assert batch.meta_info == {"step": 1}
    assert batch["n"].tolist() == [1, 2]
    assert batch["f"].dtype == torch.float64
    column = batch["j"]
    assert isinstance(column, torch.Tensor)
    assert column.is_nested
    assert batch["m"].tolist() == [1, None]
    with pytest.raises(ColumnError, match=r"row 1 and row 0 differ in \['y'\]"):
        DataProto.from_rows([{"x": 1}, {"x": 1, "y": 2}])


def test_meta_info_must_be_a_dictionary_and_is_copied() -> None:
    meta = {"a": 1}
    batch = DataProto(meta_info=meta)
    batch.meta_info["b"] = 2
    assert meta == {"a": 1}
    with pytest.raises(ColumnError, match="meta_info is a dictionary, not list"):
        batch.meta_info = []  # type: ignore[assignment]  # what is tested


def test_a_batch_has_no_attributes_beyond_its_own() -> None:
    with pytest.raises(AttributeError):
        make_batch().non_tensors = {}  # type: ignore[attr-defined]  # what is tested


def test_the_short_form_names_columns_and_not_their_contents() -> None:
    assert repr(make_batch()) == "DataProto(rows=3, x: int64[3], o: object[3])"
