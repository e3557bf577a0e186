"""Fields: select, pop, rename, clone and to."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from roll_protocol import ColumnError, ColumnNotFoundError, DataProto, object_array
from roll_protocol.testing import data_protos


def make_batch() -> DataProto:
    return DataProto.from_dict(
        {"a": torch.zeros(2), "b": torch.ones(2)}, {"o": ["x", "y"]}, {"step": 1, "keep": {"k": [1]}}
    )


def test_select_takes_a_name_several_or_all() -> None:
    batch = make_batch()
    assert batch.select().keys() == ["a", "b", "o"]
    assert batch.select("a").keys() == ["a", "o"]
    assert batch.select(["b", "a"], []).keys() == ["b", "a"]
    assert batch.select(batch_keys=["a"], non_tensor_batch_keys="o", meta_info_keys=["step"]).meta_info == {
        "step": 1
    }


@pytest.mark.parametrize("keys", [(["nope"],), (None, ["a"]), (None, None, ["nope"])])
def test_select_and_pop_of_an_unknown_name_are_errors_that_change_nothing(
    keys: tuple[list[str] | None, ...],
) -> None:
    batch = make_batch()
    for operation in (batch.select, batch.pop):
        with pytest.raises(ColumnNotFoundError, match="has no"):
            operation(*keys)
    with pytest.raises(KeyError):
        batch.pop(["a", "nope"], ["o"])
    assert batch == make_batch()


def test_a_deep_selection_shares_nothing() -> None:
    batch = make_batch()
    copy = batch.select(deepcopy=True)
    copy["a"][0] = 9
    copy.meta_info["keep"]["k"].append(2)
    assert batch == make_batch()


def test_pop_takes_columns_out_and_keeps_the_rows() -> None:
    batch = make_batch()
    taken = batch.pop(["a", "b"], "o", ["step"])
    assert taken.keys() == ["a", "b", "o"]
    assert taken.meta_info == {"step": 1}
    assert batch.keys() == []
    assert len(batch) == 2
    assert batch.meta_info == {"keep": {"k": [1]}}
    assert batch.union(taken) == make_batch()


def test_popping_the_last_array_keeps_the_rows() -> None:
    batch = DataProto.from_dict(None, {"o": [1, 2, 3]})
    batch.pop(non_tensor_batch_keys=["o"])
    assert len(batch) == 3


@given(data_protos(min_rows=1), st.data())
def test_rename_is_a_bijection_on_names(batch: DataProto, data: st.DataObject) -> None:
    names = batch.keys()
    renamed = batch.clone()
    order = data.draw(st.permutations(names))
    assert renamed.rename(names, order) is renamed
    assert sorted(renamed.keys()) == sorted(names)
    renamed.rename(order, names)
    assert renamed == batch


def test_two_columns_swap_their_names() -> None:
    batch = make_batch().rename(["a", "b"], ["b", "a"])
    assert batch["b"].tolist() == [0, 0]
    assert batch["a"].tolist() == [1, 1]
    assert make_batch().rename("o", "objects").keys() == ["a", "b", "objects"]


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("a", "b", "'b'"),
        ("a", "o", "'o'"),
        (["a", "b"], ["c", "c"], "'c'"),
        (["a", "a"], ["c", "d"], "'a'"),
        (["a"], [], "0 names"),
    ],
)
def test_rename_refuses_what_would_lose_a_column(
    old: str | list[str], new: str | list[str], error: str
) -> None:
    batch = make_batch()
    with pytest.raises(ColumnError, match=error):
        batch.rename(old, new)
    with pytest.raises(ColumnNotFoundError, match="nope"):
        batch.rename("nope", "c")
    assert batch == make_batch()


def test_to_moves_tensors_in_columns_and_in_nested_meta_data_and_leaves_the_batch_alone() -> None:
    batch = make_batch()
    batch.meta_info["t"] = (torch.zeros(1), [torch.zeros(1)], {"k": torch.zeros(1)})
    moved = batch.to("meta")
    one, (two,), three = moved.meta_info["t"]
    assert {moved["a"].device.type, one.device.type, two.device.type, three["k"].device.type} == {"meta"}
    assert batch["a"].device.type == "cpu"
    assert batch.meta_info["t"][0].device.type == "cpu"
    assert moved["o"] is batch["o"]


def test_to_the_same_device_shares_the_tensors() -> None:
    batch = make_batch()
    assert batch.to("cpu", non_blocking=True)["a"] is batch["a"]


def test_clone_shares_no_tensor_no_object_and_no_meta_data() -> None:
    batch = DataProto.from_dict({"a": torch.zeros(2)}, {"o": [[1], [2]]}, {"m": [1]}).with_row_ids([1, 2])
    copy = batch.clone()
    copy["a"][0] = 9
    copy.non_tensor_batch["o"][0].append(9)
    copy.meta_info["m"].append(9)
    assert copy.row_ids is not None
    copy.row_ids[0] = 9
    assert batch == DataProto.from_dict({"a": torch.zeros(2)}, {"o": [[1], [2]]}, {"m": [1]}).with_row_ids(
        [1, 2]
    )


def test_equality_is_by_value_and_nan_equals_nan() -> None:
    def make(x: float, other: object, array: float) -> DataProto:
        return DataProto.from_single_dict(
            {"x": torch.tensor([x]), "o": object_array([other]), "f": np.array([array])},
            {"m": [np.array([array])]},
        )

    nan = float("nan")
    assert make(nan, {"k": nan}, nan) == make(nan, {"k": nan}, nan)
    assert make(1.0, 1, 1.0) != make(2.0, 1, 1.0)
    assert make(1.0, 1, 1.0) != make(1.0, True, 1.0)
    assert make(1.0, 1, 1.0) != make(1.0, 1, 2.0)
    assert make(1.0, 1, 1.0) != make(1.0, 1, 1.0).with_row_ids([3])
    assert make(1.0, 1, 1.0) != "a batch"
    with pytest.raises(TypeError):
        hash(make(1.0, 1, 1.0))
