"""Every dtype, shape and layout survives every path with its values intact."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from roll_protocol import DataProto

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
INTEGERS = [
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
]
DTYPES = [*FLOATS, *INTEGERS, torch.bool, torch.complex64, torch.complex128]


def make_tensor(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    values = torch.arange(int(np.prod(shape))).remainder(3).reshape(shape).to(torch.float32)
    if dtype.is_floating_point and dtype.itemsize > 1 and values.numel():
        values[0] = float("nan")
        values[-1] = float("-inf")
    return values.to(dtype)


def through_a_file(batch: DataProto) -> DataProto:
    batch.save(Path("batch"))
    return DataProto.load(Path("batch"))


PATHS: dict[str, Callable[[DataProto], DataProto]] = {
    "pickle": lambda batch: pickle.loads(pickle.dumps(batch)),
    "old pickle": lambda batch: pickle.loads(pickle.dumps(batch, protocol=2)),
    "file": through_a_file,
    "chunk": lambda batch: DataProto.concat(batch.chunk(2)),
    "slice": lambda batch: batch[:],
    "reverse": lambda batch: batch[::-1][::-1],
    "index": lambda batch: batch[list(range(len(batch)))],
    "repeat": lambda batch: batch.repeat(2)[::2],
    "pad": lambda batch: batch.pad_to_divisor(4).unpad(),
    "clone": lambda batch: batch.clone(),
    "deepcopy": copy.deepcopy,
    "to": lambda batch: batch.to("cpu"),
    "union": lambda batch: batch.select(["t"], []).union(batch),
    "rename": lambda batch: batch.select().rename(["t", "o"], ["o", "t"]).rename(["t", "o"], ["o", "t"]),
    "iterator": lambda batch: DataProto.concat(list(batch.make_iterator(2, remainder="keep")) or [batch]),
    "rows": lambda batch: DataProto.concat(list(batch) or [batch]),
    "received": lambda batch: DataProto.concat(pickle.loads(pickle.dumps(batch)).chunk(3)),
}


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_dtype_survives_a_path(dtype: torch.dtype, path: Callable[[DataProto], DataProto]) -> None:
    for shape in ((3,), (3, 2), (1, 2, 2), (0,), (0, 3), (3, 0)):
        batch = DataProto.from_dict({"t": make_tensor(dtype, shape)}, {"o": [None] * shape[0]})
        after = path(batch)
        assert after["t"].dtype == dtype
        assert after["t"].shape == shape
        assert bytes_of(after["t"]) == bytes_of(make_tensor(dtype, shape))
        assert after == batch


def bytes_of(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().flatten().view(torch.uint8).tolist()) if tensor.numel() else b""


LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "transposed": lambda: torch.arange(6.0).reshape(2, 3).t(),
    "strided": lambda: torch.arange(12.0).reshape(3, 4)[:, ::2],
    "expanded": lambda: torch.ones(1, 2).expand(3, 2),
    "row of a larger storage": lambda: torch.arange(100.0).reshape(50, 2)[10:13],
    "conjugate": lambda: torch.ones(3, 2, dtype=torch.complex64).mul(1j).conj(),
    "negative": lambda: torch.ones(3, dtype=torch.complex64).mul(1j).conj().imag,
    "needs gradient": lambda: torch.ones(3, 2, requires_grad=True),
    "has gradient function": lambda: torch.ones(3, 2, requires_grad=True) * 2,
    "parameter": lambda: torch.nn.Parameter(torch.ones(3, 2)),
    "channels last": lambda: torch.arange(24.0).reshape(3, 2, 2, 2).to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_a_layout_survives_a_path(
    make: Callable[[], torch.Tensor], path: Callable[[DataProto], DataProto]
) -> None:
    batch = DataProto.from_dict({"t": make()}, {"o": [1, 2, 3]})
    after = path(batch)
    assert after == batch
    assert torch.equal(after["t"], make())
    assert after["t"].requires_grad == make().requires_grad


def test_columns_that_share_a_storage_survive_every_path() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    batch = DataProto.from_dict({"t": base[:, :2], "u": base[:, 2:], "v": base}, {"o": [1, 2, 3]})
    for path in PATHS.values():
        assert path(batch) == batch


ARRAYS: dict[str, Any] = {  # any array
    "2-D": np.arange(6.0, dtype=np.float32).reshape(3, 2),
    "3-D": np.arange(12, dtype=np.int16).reshape(3, 2, 2),
    "half": np.ones(3, dtype=np.float16),
    "big-endian": np.arange(3, dtype=">i4"),
    "fortran": np.asfortranarray(np.arange(6).reshape(3, 2)),
    "strided": np.arange(12).reshape(3, 4)[:, ::3],
    "text": np.array(["a", "bcd", ""]),
    "bytes": np.array([b"a", b"bc", b""]),
    "time": np.array(["2020-01-01", "NaT", "2021-01-01"], dtype="M8[s]"),
    "flags": np.array([True, False, True]),
    "complex": np.array([1j, 2, np.nan]),
    "no columns": np.zeros((3, 0)),
    "2-D objects": np.array([[1, "a"], [None, 2.0], [(), []]], dtype=object),
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS.keys())
def test_an_array_survives_a_path(array: Any, path: Callable[[DataProto], DataProto]) -> None:  # any array
    batch = DataProto.from_single_dict({"t": torch.zeros(3), "o": array})
    after = path(batch)
    assert after == batch
    assert after["o"].dtype == array.dtype
    assert after["o"].shape == array.shape
