"""The wire: pickling is exact, out of band, costs what is sent, and what arrives may be written to."""

import copy
import gc
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # ships no types
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from roll_protocol import DataProto, object_array
from roll_protocol.testing import data_protos


def send(batch: DataProto) -> tuple[bytes, list[bytes]]:
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(batch, protocol=5, buffer_callback=buffers.append)
    return data, [bytes(buffer.raw()) for buffer in buffers]


def receive(data: bytes, buffers: list[bytes]) -> DataProto:
    batch = pickle.loads(data, buffers=buffers)
    assert isinstance(batch, DataProto)
    return batch


def make_batch(*, rows: int, tokens: int) -> DataProto:
    return DataProto.from_dict(
        {
            "ids": torch.arange(rows * tokens).reshape(rows, tokens),
            "mask": torch.ones(rows, tokens, dtype=torch.bool),
            "logp": torch.zeros(rows, tokens, dtype=torch.bfloat16),
        },
        {"text": [f"prompt {row}" for row in range(rows)], "score": np.arange(rows, dtype=np.float32)},
    )


@given(data_protos(), st.integers(2, 5))
def test_every_protocol_of_pickle_and_cloudpickle_give_an_equal_batch(
    batch: DataProto, protocol: int
) -> None:
    assert pickle.loads(pickle.dumps(batch, protocol=protocol)) == batch
    assert receive(*send(batch)) == batch
    assert cloudpickle.loads(cloudpickle.dumps(batch)) == batch
    assert receive(*send(receive(*send(batch))[::-1]))[::-1] == batch


def test_all_bytes_of_tensors_and_arrays_travel_out_of_band() -> None:
    batch = make_batch(rows=64, tokens=512)
    data, buffers = send(batch)
    assert sum(map(len, buffers)) == 64 * 512 * (8 + 1 + 2) + 64 * 4
    assert len(data) < 4000


def test_a_slice_costs_the_slice_whatever_holds_it() -> None:
    batch = make_batch(rows=64, tokens=512)
    part = batch.chunk(8)[3]
    assert len(pickle.dumps(part)) <= 1.05 * part.nbytes + 2000
    big = torch.zeros(1_000_000)
    odd = DataProto.from_dict(
        {"strided": torch.zeros(4, 1000)[:, ::500]},
        {"tensors": [big[:2], big[2:4], np.zeros(9999)[:3], {"k": 1}]},
        {"scale": big[:1]},
    )
    assert len(pickle.dumps(odd)) < 4000


def test_an_empty_and_a_meta_only_batch_can_be_sent() -> None:
    for batch in (DataProto(), DataProto(meta_info={"a": 1}), make_batch(rows=3, tokens=2)[:0]):
        assert receive(*send(batch)) == batch


def test_writing_to_a_received_batch_works_and_reaches_no_other_reader() -> None:
    batch = make_batch(rows=4, tokens=3)
    data, buffers = send(batch)
    one, two = receive(data, buffers), receive(data, buffers)
    assert one.batch is not None
    one.batch["ids"].add_(1)
    one["mask"][:] = False
    one.batch.apply_(lambda tensor: tensor.zero_())
    one.non_tensor_batch["score"] += 1
    one["score"][0] = 7
    assert two == batch
    assert receive(data, buffers) == batch
    assert one["ids"].sum() == 0
    assert one["score"].tolist() == [7, 2, 3, 4]


def test_writing_to_a_batch_loaded_from_its_own_memory_does_not_reach_the_source() -> None:
    batch = make_batch(rows=2, tokens=2)
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(batch, protocol=5, buffer_callback=buffers.append)
    received = pickle.loads(data, buffers=buffers)
    received["ids"].add_(5)
    received.non_tensor_batch["score"][:] = 9
    assert batch == make_batch(rows=2, tokens=2)


def test_a_received_column_is_copied_once_and_only_when_it_is_handed_out() -> None:
    batch = receive(*send(make_batch(rows=4, tokens=3)))
    before = batch.numpy("ids").ctypes.data
    assert batch[1:].chunk(2)[0].numpy("ids").ctypes.data == before + 3 * 8
    assert batch.to("cpu").select(["ids"]).numpy("ids").ctypes.data == before
    first = batch["ids"]
    assert isinstance(first, torch.Tensor)
    assert first.data_ptr() != before
    assert batch["ids"] is first
    assert batch.batch is not None
    assert batch.batch["ids"] is first
    assert batch.numpy("ids").ctypes.data == first.data_ptr()
    assert batch.numpy("mask").ctypes.data != 0


def test_a_row_or_part_of_a_received_batch_can_be_written_to() -> None:
    data, buffers = send(make_batch(rows=4, tokens=3))
    batch = receive(data, buffers)
    for part in (
        batch[0],
        batch[1:3],
        batch.chunk(2)[1],
        next(iter(batch)),
        batch.select(["ids"]),
        batch.rename("ids", "i").rename("i", "ids"),
    ):
        part["ids"].mul_(0)
    assert receive(data, buffers) == make_batch(rows=4, tokens=3)


@pytest.mark.parametrize(
    "use",
    [
        lambda td: [tensor.zero_() for tensor in td.values()],
        lambda td: [tensor.zero_() for _, tensor in td.items()],
        lambda td: [td[name].zero_() for name in td.keys()],  # noqa: SIM118  # a TensorDict iterates over rows
        lambda td: td.zero_(),
        lambda td: td.apply_(lambda tensor: tensor.zero_()),
        lambda td: td.apply(lambda tensor: tensor.zero_()),
        lambda td: td[0].zero_(),
        lambda td: td[:2].zero_(),
        lambda td: [row.zero_() for row in td],
        lambda td: [part.zero_() for part in td.split(2)],
        lambda td: [part.zero_() for part in td.chunk(2)],
        lambda td: [part.zero_() for part in td.unbind(0)],
        lambda td: td.select("ids").zero_(),
        lambda td: td.exclude("ids").zero_(),
        lambda td: td.reshape(-1).zero_(),
        lambda td: td.view(2, 2).zero_(),
        lambda td: td.unsqueeze(0).zero_(),
        lambda td: td.flatten_keys().zero_(),
        lambda td: td.copy().zero_(),
        lambda td: copy.copy(td).zero_(),
        lambda td: td.clone(recurse=False).zero_(),
        lambda td: td.clone().zero_(),
        lambda td: td.to_tensordict().zero_(),
        lambda td: [tensor.zero_() for tensor in td.to_dict().values()],
        lambda td: td.to("cpu").zero_(),
        lambda td: td.pop("ids").zero_(),
        lambda td: td.get("ids").zero_(),
        lambda td: td.popitem()[1].zero_(),
        lambda td: td.rename_key_("ids", "other")["other"].zero_(),
        lambda td: td.update_(td.apply(torch.zeros_like)),
        lambda td: td.set_("ids", torch.zeros(4, 3, dtype=torch.int64)),
        lambda td: td.fill_("ids", 0),
        lambda td: td.masked_fill_(torch.ones(4, dtype=torch.bool), 0),
        lambda td: td.set_at_("ids", torch.zeros(3, dtype=torch.int64), 0),
        lambda td: td.__setitem__(0, td[1]),
        lambda td: td.lock_().zero_(),
        lambda td: td.detach().zero_(),
        lambda td: td.data.zero_(),
        lambda td: pickle.loads(pickle.dumps(td)).zero_(),
        lambda td: torch.utils._pytree.tree_map(lambda tensor: tensor.zero_(), td),
        lambda td: td.named_apply(lambda _, tensor: tensor.zero_()),
    ],
)
def test_no_way_of_writing_through_the_tensordict_reaches_memory_of_others(use: Any) -> None:  # a function
    data, buffers = send(make_batch(rows=4, tokens=3).select(["ids", "mask", "logp"], []))
    batch = receive(data, buffers)
    use(batch.batch)
    len(batch)
    assert receive(data, buffers) == make_batch(rows=4, tokens=3).select(["ids", "mask", "logp"], [])


def test_tensors_and_arrays_inside_objects_and_meta_data_may_be_written_to() -> None:
    def make() -> DataProto:
        return DataProto.from_dict(
            None,
            {
                "o": [
                    torch.zeros(3),
                    np.zeros(2),
                    "text",
                    np.array(["a"]),
                    torch.ones(1, dtype=torch.bfloat16),
                ]
            },
            {"t": torch.zeros(2), "d": {"a": [np.zeros(2)]}, "u": (torch.zeros(1),)},
        )

    data, buffers = send(make())
    one = receive(data, buffers)
    one["o"][0].add_(1)
    one["o"][1][:] = 5
    one.meta_info["t"].add_(1)
    one.meta_info["d"]["a"][0][:] = 5
    one.meta_info["u"][0].add_(1)
    assert receive(data, buffers) == make()


def test_a_column_that_takes_the_place_of_a_received_one_is_handed_out_as_it_is() -> None:
    received = receive(*send(make_batch(rows=2, tokens=2)))
    mine = torch.zeros(2, 2)
    for part in (received.select(["mask"]), received.select([], []), received.select().rename("ids", "i")):
        part.union(DataProto.from_single_dict({"ids": mine}))
        assert part["ids"] is mine
    received["ids"] = mine
    assert received["ids"] is mine


def test_a_batch_that_is_made_of_the_parts_of_a_received_one_is_careful_too() -> None:
    def make() -> DataProto:
        return make_batch(rows=4, tokens=3).union(DataProto.from_dict(None, {"o": [torch.zeros(2)] * 4}))

    data, buffers = send(make())
    rebuilds: list[Callable[[Any], DataProto]] = [  # a batch
        lambda batch: DataProto(batch.batch, batch.non_tensor_batch, batch.meta_info),
        lambda batch: DataProto(batch.batch.select("ids", "mask", "logp"), dict(batch.non_tensor_batch)),
        lambda batch: DataProto.from_dict(dict(batch.batch.items()), batch.non_tensor_batch),
        lambda batch: DataProto.from_single_dict({**batch.batch, **batch.non_tensor_batch}),
    ]
    for rebuild in rebuilds:
        batch = rebuild(receive(data, buffers))
        assert batch == make()
        for part in (batch, batch[1:], rebuild(batch)):
            part["ids"].add_(1)
            part["score"][:] = 9
            part["o"][0].add_(1)
    empty = make_batch(rows=4, tokens=3)
    empty.batch = receive(data, buffers).batch
    empty.non_tensor_batch = receive(data, buffers).non_tensor_batch
    empty[:2]["ids"].zero_()
    empty["o"][0].add_(1)
    assert receive(data, buffers) == make()


def test_two_threads_are_handed_the_same_copy() -> None:
    batch = receive(*send(make_batch(rows=64, tokens=2048)))
    view = batch.batch
    assert view is not None
    with ThreadPoolExecutor(8) as pool:
        columns = list(pool.map(lambda _: view["ids"], range(8)))
    assert len({id(column) for column in columns}) == 1


def test_what_arrives_keeps_its_buffers_alive() -> None:
    batch = receive(*send(make_batch(rows=64, tokens=64)))
    gc.collect()
    trash = [bytes(200_000) for _ in range(20)]
    assert batch == make_batch(rows=64, tokens=64)
    assert len(trash) == 20


def test_gradients_are_asked_for_after_the_journey_too() -> None:
    batch = DataProto.from_single_dict({"w": torch.ones(2, requires_grad=True), "x": torch.ones(2)})
    received = receive(*send(batch))
    assert received["w"].requires_grad
    assert received["w"].is_leaf
    assert not received["x"].requires_grad
    received["w"].sum().backward()
    assert received["w"].grad.tolist() == [1, 1]


def test_copy_shares_memory_and_deepcopy_does_not() -> None:
    batch = make_batch(rows=2, tokens=2)
    shallow, deep = copy.copy(batch), copy.deepcopy(batch)
    batch["ids"].add_(1)
    assert shallow == batch
    assert deep == make_batch(rows=2, tokens=2)


class Named(DataProto):
    """A batch with an attribute of its own."""

    def __init__(self, **kwargs: Any) -> None:  # as DataProto
        super().__init__(**kwargs)
        self.label = "mine"


def test_a_subclass_keeps_its_class_and_its_attributes() -> None:
    batch = Named(non_tensor_batch={"o": object_array([1, 2])})
    received = pickle.loads(pickle.dumps(batch))
    assert type(received) is Named
    assert received.label == "mine"
    part = batch.chunk(2)[0]
    assert isinstance(part, Named)
    assert part.label == "mine"
