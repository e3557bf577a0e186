"""Summaries: sizes, the table, NumPy views and the TensorDict form."""

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from roll_protocol import ColumnError, DataProto, object_array


def make_batch() -> DataProto:
    return DataProto.from_single_dict(
        {
            "ids": torch.zeros(2, 3, dtype=torch.int64),
            "half": torch.zeros(2, dtype=torch.bfloat16),
            "turns": torch.nested.nested_tensor_from_jagged(torch.zeros(3), torch.tensor([0, 1, 3])),
            "score": np.zeros(2, dtype=np.float32),
            "text": object_array(["a", "b"]),
        },
        {"step": 1},
    )


def test_nbytes_adds_up_the_columns() -> None:
    assert make_batch().nbytes == 2 * 3 * 8 + 2 * 2 + (3 * 4 + 3 * 8) + 2 * 4 + 2 * 8
    assert make_batch()[:1].select(["ids"], []).nbytes == 24
    assert DataProto().nbytes == 0


def test_the_table_shows_every_column() -> None:
    assert make_batch().with_row_ids([1, 2]).describe().splitlines() == [
        "column  kind    dtype     shape   bytes  device",
        "ids     tensor  int64     [2, 3]  48 B   cpu",
        "half    tensor  bfloat16  [2]     4 B    cpu",
        "turns   jagged  float32   [2, j]  36 B   cpu",
        "score   array   float32   [2]     8 B    -",
        "text    array   object    [2]     16 B   -",
        "2 rows | 112 B | row_ids | meta_info: step",
    ]
    assert "1 rows of padding" in make_batch().pad_to_divisor(3).describe()
    assert "4.0 MB" in DataProto.from_single_dict({"x": torch.zeros(1000, 1000)}).describe()


def test_a_numpy_view_shares_memory_and_refuses_writes_unless_asked() -> None:
    batch = make_batch()
    view = batch.numpy("ids")
    batch["ids"][0, 0] = 7
    assert view[0, 0] == 7
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        batch.numpy("score")[0] = 1
    batch.numpy("ids", readonly=False)[1, 1] = 5
    batch.numpy("score", readonly=False)[1] = 5
    assert batch["ids"][1, 1] == 5
    assert batch["score"][1] == 5


def test_what_numpy_cannot_show_is_an_error_with_a_way_out() -> None:
    with pytest.raises(ColumnError, match=r"cannot show column 'half'.*\.float\(\)"):
        make_batch().numpy("half")
    with pytest.raises(ColumnError, match="jagged"):
        make_batch().numpy("turns")


def test_the_tensordict_form_has_every_column() -> None:
    td = make_batch().as_tensordict()
    assert isinstance(td, TensorDict)
    assert td.batch_size == (2,)
    assert td["score"].dtype == torch.float32
    assert td["text"] == ["a", "b"]
    assert td[1:]["text"] == ["b"]
    assert set(make_batch()[:0].as_tensordict().keys()) == {"ids", "half", "turns", "score", "text"}
