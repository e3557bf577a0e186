"""DataProto on Ray: nothing is copied before it is touched, and nobody writes to what another reads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
import torch

from roll_protocol import DataProto, Metric, object_array

pytestmark = pytest.mark.ray
MEGABYTE = 2**20
COLUMN_MB = 16


def make_batch(*, rows: int = 8, columns: int = 2, tokens: int = 4) -> DataProto:
    tensors = {f"c{place}": torch.full((rows, tokens), float(place)) for place in range(columns)}
    batch = DataProto.from_dict(tensors, {"text": [f"prompt {row}" for row in range(rows)]})
    batch["half"] = torch.ones(rows, dtype=torch.bfloat16)
    batch["score"] = torch.arange(rows).numpy()
    batch.meta_info["metrics"] = {"loss": 1.0, "tokens": Metric.sum(rows)}
    return batch


def make_large() -> DataProto:
    """Eight columns of 16 MB."""
    return make_batch(rows=COLUMN_MB * 64, columns=8, tokens=4096)


def resident_mb() -> dict[str, float]:
    """Return how much memory this process holds by itself and how much of the object store it has touched."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(fields[name].split()[0]) / 1024 for name in ("RssAnon", "RssShmem")}


class Growth:
    """Measures by how much a step made this process grow."""

    def __init__(self) -> None:
        self.last = resident_mb()
        self.steps: dict[str, tuple[float, float]] = {}

    def after(self, step: str) -> None:
        now = resident_mb()
        anon, shared = (now[name] - self.last[name] for name in ("RssAnon", "RssShmem"))
        self.steps[step], self.last = (anon, shared), now


@ray.remote(num_cpus=0)
class Reader:
    """A worker that reads what is in the object store."""

    def warm_up(self) -> None:
        """Load every library, so that only data make the process grow afterwards."""
        batch = ray.get(ray.put(make_batch()))
        batch["c0"].add_(1)
        DataProto.concat(batch.chunk(2))
        ray.get(ray.put(batch[:2]))
        batch.numpy("c1").sum()

    def measure(self, refs: list[Any]) -> dict[str, tuple[float, float]]:  # references of Ray
        """Return the growth, of own and of touched shared memory, after each step."""
        growth = Growth()
        batch = ray.get(refs[0])
        growth.after("get")
        parts = batch.chunk(8)
        view = batch.select(["c1"]).slice(0, 10).rename("c1", "x")
        growth.after("cut")
        resent = ray.put(parts[0].select(["c0"]))
        growth.after("send a part of one column")
        assert float(batch.numpy("c2").sum()) == 2 * len(batch) * 4096
        growth.after("read a column in place")
        batch["c3"].add_(1)
        growth.after("write to a column")
        batch["c3"].add_(1)
        growth.after("write to it again")
        assert float(view.numpy("x")[0, 0]) == 1
        assert len(ray.get(resent)) == len(parts[0])
        return growth.steps

    def write(self, batch: DataProto) -> DataProto:
        """Write to every column that came as an argument, in every way."""
        assert batch.batch is not None
        batch.batch.apply_(lambda tensor: tensor.add_(1))
        batch["c0"][0] = 7
        batch.non_tensor_batch["score"] += 100
        batch["text"][0] = "written"
        return batch

    def emit(self, batch: DataProto) -> DataProto:
        """Answer with the metrics that came and one more."""
        metrics = batch.meta_info["metrics"]
        metrics["seen@sum"] = len(batch)
        return DataProto(meta_info={"metrics": metrics}).to("cpu")


@pytest.fixture(scope="module")
def reader(ray_session: str) -> Any:  # an actor handle, which Ray leaves untyped
    actor = Reader.remote()  # type: ignore[attr-defined]  # see above
    ray.get(actor.warm_up.remote(), timeout=120)
    return actor


def test_no_byte_of_a_received_batch_is_copied_or_touched_before_it_is_used(
    reader: Any,
) -> None:  # see reader
    steps = ray.get(reader.measure.remote([ray.put(make_large())]), timeout=120)
    for untouched in ("get", "cut"):
        own, shared = steps[untouched]
        assert own < 1
        assert shared < 1
    part_mb = COLUMN_MB / 8
    own, shared = steps["send a part of one column"]
    assert own < 1
    assert shared < 2 * part_mb + 1  # read once, written to the store once
    own, shared = steps["read a column in place"]
    assert own < 1
    assert shared == pytest.approx(COLUMN_MB, abs=2)
    own, _ = steps["write to a column"]
    assert own == pytest.approx(COLUMN_MB, abs=1)
    own, _ = steps["write to it again"]
    assert own < 1


def test_writing_to_what_was_received_works_and_changes_no_other_reader(reader: Any) -> None:  # see reader
    batch = make_batch()
    ref = ray.put(batch)
    one, two = ray.get(ref), ray.get(ref)
    written = ray.get(reader.write.remote(ref), timeout=60)
    one["c0"].zero_()
    one.non_tensor_batch["score"][:] = -1
    one[2:4]["c1"].zero_()
    assert written["c0"][0].tolist() == [7] * 4
    assert written["c1"][0].tolist() == [2] * 4
    assert written["half"].tolist() == [2] * 8
    assert written["score"].tolist() == list(range(100, 108))
    assert two == batch == ray.get(ref)


@pytest.mark.parametrize(
    "change",
    [
        lambda batch: batch,
        lambda batch: batch[:0],
        lambda batch: batch[3],
        lambda batch: batch.select([], []),
        lambda batch: DataProto(meta_info=batch.meta_info),
        lambda batch: batch.with_row_ids().pad_to_divisor(3),
        lambda batch: batch.union(DataProto.from_rows([{"j": torch.arange(n)} for n in range(8)])),
        lambda batch: batch.union(DataProto.from_dict(None, {"t": [torch.ones(n) for n in range(8)]})),
    ],
)
def test_any_batch_comes_back_equal_from_the_object_store(
    ray_session: str, change: Callable[[DataProto], DataProto]
) -> None:
    batch = change(make_batch())
    assert ray.get(ray.put(batch)) == batch


def test_a_slice_takes_the_room_of_the_slice_in_the_object_store(ray_session: str) -> None:
    batch = make_large()
    refs = [ray.put(batch), ray.put(batch.chunk(8)[3])]
    whole, part = (place["object_size"] for place in ray.experimental.get_object_locations(refs).values())
    assert whole == pytest.approx(batch.nbytes, rel=0.02)
    assert part == pytest.approx(batch.nbytes / 8, rel=0.02)


def test_materialize_concat_joins_references_in_order_and_counts_each_metric_once(
    reader: Any,
) -> None:  # see reader
    batch = make_batch()
    parts = batch.chunk(3)
    refs = [ray.put(part) for part in parts]
    assert DataProto.materialize_concat(refs) == batch
    assert DataProto.materialize_concat(ray.put(batch)) == batch
    answers = DataProto.materialize_concat([reader.emit.remote(ref) for ref in refs], timeout_s=60)
    metrics = answers.meta_info["metrics"]
    assert metrics["loss"] == [1.0]
    assert metrics["tokens"].value == 8
    assert metrics["seen@sum"] == 8


def test_objects_that_only_cloudpickle_can_send_travel_too(ray_session: str) -> None:
    offset = 2
    batch = DataProto(non_tensor_batch={"f": object_array([lambda x: x + offset, None])})
    assert ray.get(ray.put(batch))["f"][0](1) == 3
