"""Files: whole or an error, and nothing runs when one is read."""

import hashlib
import json
import os
import pickle
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from roll_protocol import DataProto, Metric, StorageError, object_array
from roll_protocol.testing import data_protos

PATH = Path("batch.safetensors")


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make_batch() -> DataProto:
    batch = DataProto.from_dict(
        {
            "x": torch.arange(6.0).reshape(3, 2),
            "b": torch.tensor([True, False, True]),
            "h": torch.ones(3, dtype=torch.bfloat16),
            "c": torch.ones(3, dtype=torch.complex64),
            "j": torch.nested.nested_tensor_from_jagged(torch.arange(5.0), torch.tensor([0, 2, 2, 5])),
        },
        {"o": ["a", (1, {"k": None}), b"raw"], "f": np.arange(3.0), "u": np.array(["x", "yy", "z"])},
        {"metrics": {"loss": 1.0, "n": Metric.sum(3)}, "scale": torch.ones(2), "nan": float("nan")},
    )
    return batch.with_row_ids([5, 6, 7]).pad_to_divisor(2)


@given(data_protos())
def test_a_batch_comes_back_equal_from_a_file_without_pickle(batch: DataProto) -> None:
    batch.save(PATH)
    assert DataProto.load(PATH) == batch


def test_every_kind_of_value_comes_back_with_its_type() -> None:
    values = [
        *({1, 2}, frozenset({"a"}), (1, (2,)), b"\x00\xff", 1 + 2j, 10**30, "\ud800", float("-inf")),
        *(
            np.float32(0.5),
            np.array([[1, 2]], dtype=np.int16),
            np.datetime64("2020-01-01"),
            object_array([1, "a"]),
        ),
        *(torch.ones(2, dtype=torch.int8), Metric.mean(1.0, weight=2), [True, None, ""], {"a": {"b": [1.5]}}),
        *({1: "a", (2, 3): "b"}, {"$": "float"}),
    ]
    batch = DataProto.from_dict(None, {"o": values})
    batch.save(PATH)
    loaded = DataProto.load(PATH)
    assert loaded == batch
    assert [type(value) for value in loaded["o"]] == [type(value) for value in values]


def test_metrics_keep_their_identity_in_a_file() -> None:
    one, two = DataProto.from_single_dict({"x": torch.zeros(2)}, {"metrics": {"a": 1.0, "n@sum": 2}}).chunk(2)
    one.save(PATH)
    assert DataProto.concat([DataProto.load(PATH), two]).meta_info["metrics"] == {"a": [1.0], "n@sum": 2}


def test_a_loaded_batch_may_be_written_to() -> None:
    make_batch().save(PATH)
    loaded = DataProto.load(PATH)
    loaded["x"].add_(1)
    loaded["f"][0] = 9
    assert DataProto.load(PATH) == make_batch()


def test_any_safetensors_reader_finds_the_tensors_under_their_names() -> None:
    make_batch().save(PATH)
    tensors = safetensors.torch.load_file(PATH)
    assert torch.equal(tensors["x"], make_batch()["x"])
    assert torch.equal(tensors["h"], make_batch()["h"])


def test_columns_with_the_names_of_other_entries_are_kept_apart() -> None:
    names = ["meta_info", "__metadata__", "row_ids", "j.offsets", "meta_info'"]
    batch = DataProto.from_single_dict(
        {name: torch.tensor([place]) for place, name in enumerate(names)}
    ).with_row_ids([9])
    batch.save(PATH)
    assert DataProto.load(PATH) == batch


class Marker:
    """Leaves a mark when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, ...]]:
        return Path.touch, (Path("ran"),)  # type: ignore[return-value]  # what is tested


def test_an_object_without_a_plain_form_needs_pickle_to_be_allowed_on_both_sides() -> None:
    batch = DataProto.from_dict(None, {"o": [1, {2: Path("a")}]})
    with pytest.raises(StorageError, match=r"column 'o' holds a pathlib\.PosixPath.*allow_pickle=True"):
        batch.save(PATH)
    assert not PATH.exists()
    batch.save(PATH, allow_pickle=True)
    with pytest.raises(StorageError, match="run code when they are read"):
        DataProto.load(PATH)
    assert DataProto.load(PATH, allow_pickle=True) == batch


def test_a_file_that_lies_about_its_pickles_runs_no_code() -> None:
    DataProto.from_dict(None, {"o": [Marker()]}).save(PATH, allow_pickle=True)
    forge(lambda manifest: manifest | {"pickle": False})
    with pytest.raises(StorageError, match="run code"):
        DataProto.load(PATH)
    assert not Path("ran").exists()


def test_saving_replaces_a_file_whole_and_leaves_nothing_beside_it() -> None:
    make_batch().save(PATH)
    make_batch()[:1].save(str(PATH))
    assert os.listdir() == [PATH.name]
    assert DataProto.load(PATH) == make_batch()[:1]
    with pytest.raises(FileNotFoundError):
        make_batch().save("nowhere/batch")


def test_a_missing_file_is_a_missing_file() -> None:
    with pytest.raises(FileNotFoundError):
        DataProto.load("nothing")


def test_a_file_of_something_else_says_so() -> None:
    safetensors.torch.save_file({"x": torch.zeros(2)}, PATH)
    with pytest.raises(StorageError, match=r"DataProto\.save did not write"):
        DataProto.load(PATH)
    PATH.write_bytes(pickle.dumps(Marker()))
    with pytest.raises(StorageError, match="damaged or no batch"):
        DataProto.load(PATH)
    assert not Path("ran").exists()


def assert_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(StorageError):
            DataProto.load(PATH)


@given(st.data())
def test_a_truncated_file_is_an_error(data: st.DataObject) -> None:
    make_batch().save(PATH)
    whole = PATH.read_bytes()
    PATH.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    assert_is_refused()


def test_every_single_flipped_bit_is_an_error() -> None:
    make_batch().save(PATH)
    whole = bytearray(PATH.read_bytes())
    for place in range(len(whole)):
        whole[place] ^= 1 << (place % 8)
        PATH.write_bytes(whole)
        assert_is_refused()
        whole[place] ^= 1 << (place % 8)


@given(st.binary(max_size=400), st.booleans())
def test_random_bytes_are_an_error(noise: bytes, with_length: bool) -> None:
    PATH.write_bytes((struct.pack("<Q", len(noise)) if with_length else b"") + noise)
    assert_is_refused()


@pytest.mark.parametrize("length", [0, 1, 2**31, 2**63, 2**64 - 1])
def test_a_wrong_header_length_is_an_error(length: int) -> None:
    make_batch().save(PATH)
    PATH.write_bytes(struct.pack("<Q", length) + PATH.read_bytes()[8:])
    assert_is_refused()


def forge(change: Callable[[Any], Any]) -> None:
    """Change the manifest of the file and give it a right sum, as somebody hostile would."""
    data = PATH.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"]["roll_protocol"] = json.dumps(
        change(json.loads(header["__metadata__"]["roll_protocol"]))
    )
    seal(header, data[8 + length :])


def seal(header: Any, body: bytes) -> None:
    header["__metadata__"]["sha256"] = "0" * 64
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    blank = struct.pack("<Q", len(text)) + text + body
    PATH.write_bytes(blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode(), 1))


def changed(path: list[Any], value: Any) -> Callable[[Any], Any]:  # JSON
    def change(manifest: Any) -> Any:  # JSON
        target = manifest
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value
        return manifest

    return change


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["tensors", 0, "shape"], [3, 2**62]),
        (["tensors", 0, "shape"], [-3, -2]),
        (["tensors", 0, "shape"], [6]),
        (["tensors", 0, "shape"], [2**40, 0]),
        (["tensors", 0, "shape"], "3,2"),
        (["tensors", 0, "shape"], [3.0, 2.0]),
        (["tensors", 0, "dtype"], "float64"),
        (["tensors", 0, "dtype"], "quint8"),
        (["tensors", 0, "dtype"], "__class__"),
        (["tensors", 0, "dtype"], ["float32"]),
        (["tensors", 0, "key"], "nothing"),
        (["tensors", 0, "key"], 7),
        (["tensors", 0, "name"], "f"),
        (["tensors", 0, "name"], ""),
        (["tensors", 0], []),
        (["tensors", 1, "key"], "x"),
        (["tensors", 4, "offsets", "key"], "x"),
        (["tensors"], None),
        (["tensors"], {"a": 1}),
        (["arrays", 1, "dtype"], "|O"),
        (["arrays", 1, "dtype"], "<f4"),
        (["arrays", 1, "dtype"], "V8"),
        (["arrays", 1, "shape"], [2**60, 2**60]),
        (["arrays", 1, "key"], "b"),
        (["arrays", 0, "objects"], "meta_info"),
        (["rows"], 10**20),
        (["rows"], -1),
        (["rows"], 5),
        (["rows"], "4"),
        (["dims"], [7]),
        (["meta"], "f"),
        (["row_ids", "shape"], [2]),
        (["row_ids"], 5),
        (["is_pad", "dtype"], "|u1"),
        (["version"], 99),
        (["has_batch"], None),
    ],
)
def test_a_forged_manifest_is_an_error_and_never_a_partial_batch(path: list[Any], value: Any) -> None:  # JSON
    make_batch().save(PATH)
    forge(changed(path, value))
    if path == ["has_batch"]:
        assert DataProto.load(PATH) == make_batch()  # there are tensors, so there is a batch
    else:
        assert_is_refused()


@pytest.mark.parametrize("offsets", [[0, 2, 9], [0, 9, 3], [1, 2, 3], [0, 2, 2], [0, -1, 3], [-1, 2, 3]])
def test_offsets_that_point_outside_of_a_jagged_column_are_an_error(offsets: list[int]) -> None:
    jagged = torch.nested.nested_tensor_from_jagged(torch.arange(3.0), torch.tensor([0, 2, 3]))
    DataProto.from_single_dict({"j": jagged}).save(PATH)
    data = PATH.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + length]), bytearray(data[8 + length :])
    start, stop = header["j.offsets"]["data_offsets"]
    body[start:stop] = struct.pack("<3q", *offsets)
    seal(header, bytes(body))
    with pytest.raises(StorageError, match="offsets do not fit"):
        DataProto.load(PATH)


@given(st.data())
def test_any_value_anywhere_in_the_manifest_is_an_error_or_an_equal_batch(data: st.DataObject) -> None:
    make_batch().save(PATH)
    odd: st.SearchStrategy[object] = (
        st.none()
        | st.booleans()
        | st.integers(-(2**70), 2**70)
        | st.text(max_size=3)
        | st.just([])
        | st.just({})
        | st.floats()
    )

    def change(manifest: Any) -> Any:  # JSON
        target = manifest
        while True:
            places = list(target) if isinstance(target, dict) else list(range(len(target)))
            if not places:
                return manifest
            place = data.draw(st.sampled_from(places))
            if isinstance(target[place], (dict, list)) and data.draw(st.booleans()):
                target = target[place]
                continue
            target[place] = data.draw(odd)
            return manifest

    forge(change)
    try:
        loaded = DataProto.load(PATH)
    except StorageError:
        return
    for name in loaded.keys():  # noqa: SIM118  # a batch iterates over its rows
        assert len(loaded[name]) == len(loaded)


@pytest.mark.parametrize(
    "text",
    [
        b'{"metrics": {"$": "pickle", "v": "gASVAAAA"}}',
        b'{"a": {"$": "nothing"}}',
        b'{"a": {"$": "float", "v": "abc"}}',
        b'{"a": {"$": "array", "t": "|O", "s": [1], "v": "AAAAAAAAAAA="}}',
        b'{"a": {"$": "array", "t": "<U1", "s": [1], "v": "/////w=="}}',
        b'{"a": {"$": "array", "t": "|b1", "s": [1], "v": "Bw=="}}',
        b'{"a": {"$": "array", "t": "<U0", "s": [99999999999], "v": ""}}',
        b'{"a": {"$": "tensor", "v": ["float32", [99999999999], false, ""]}}',
        b'{"a": {"$": "tensor", "v": ["bool", [1], false, "Bw=="]}}',
        b'{"a": {"$": "tensor", "v": ["float32", [1], false, "not base 64"]}}',
        b'{"a": {"$": "set", "v": [[]]}}',
        b'{"a": {"$": "dict", "v": [[{}, 1]]}}',
        b'{"a": {"$": "objects", "s": [3], "v": []}}',
        b'{"a": {"$": "metric", "v": ["mode", []]}}',
        b'{"a": {"$": []}}',
        b'{"a": {"$": "complex", "v": ["a", 1]}}',
        b"[1]",
        b'{"a": 1',
        b"[" * 100_000,
        b'{"a": ' * 3000 + b"1" + b"}" * 3000,
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
    ids=range(21),
)
def test_hostile_meta_data_are_an_error(text: bytes) -> None:
    DataProto(meta_info={"a": 1}).save(PATH)
    data = PATH.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header["meta_info"] = {"dtype": "U8", "shape": [len(text)], "data_offsets": [0, len(text)]}
    seal(header, text)
    assert_is_refused()
