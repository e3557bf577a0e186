"""Any sequence of operations on a batch does what it does to a plain list of rows."""

import pickle
from typing import Any

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from roll_protocol import ColumnError, ConflictError, DataProto, RowIndexError, object_array
from roll_protocol.equality import same
from roll_protocol.testing import as_rows

NAMES = st.sampled_from(["a", "b", "c", "d"])
NUMBERS = st.integers(0, 3)
Row = dict[str, Any]  # a value of any column


class BatchMachine(RuleBasedStateMachine):
    """A batch beside its model: the rows, their identities, and the meta data."""

    @initialize(numbers=st.lists(NUMBERS, max_size=5), received=st.booleans())
    def start(self, numbers: list[int], received: bool) -> None:
        self.rows: list[Row] = [{"x": torch.tensor(n), "name": f"n{n}"} for n in numbers]
        self.ids = list(range(10, 10 + len(numbers)))
        self.meta: dict[str, Any] = {"step": 1}  # any meta data
        columns: dict[str, Any] = {  # any column
            "x": torch.tensor(numbers, dtype=torch.int64),
            "name": object_array([f"n{n}" for n in numbers]),
        }
        self.batch = DataProto.from_single_dict(columns, self.meta)
        self.batch.row_ids = self.ids
        if received:
            self.travel(5)

    def take(self, batch: DataProto, places: list[int]) -> None:
        self.batch = batch
        self.rows = [dict(self.rows[place]) for place in places]
        self.ids = [self.ids[place] for place in places]

    @rule(name=NAMES, number=NUMBERS, as_array=st.booleans())
    def write(self, name: str, number: int, as_array: bool) -> None:
        column: Any = torch.full((len(self.rows), 2), float(number))  # a tensor, then perhaps an array
        self.batch[name] = column.numpy() if as_array else column
        for row in self.rows:
            row[name] = column[0].numpy() if as_array else column[0]

    @rule(name=NAMES)
    def write_ragged(self, name: str) -> None:
        lengths = [place % 3 for place in range(len(self.rows))]
        values = torch.arange(float(sum(lengths)))
        offsets = torch.tensor([0, *lengths]).cumsum(0)
        self.batch[name] = torch.nested.nested_tensor_from_jagged(values, offsets)
        for row, value in zip(self.rows, torch.split(values, lengths) if lengths else (), strict=True):
            row[name] = value

    @rule(name=NAMES, number=NUMBERS)
    def write_through_the_dictionaries(self, name: str, number: int) -> None:
        if name in self.batch:
            del self.batch[name]
        values = [(number, place) for place in range(len(self.rows))]
        self.batch.non_tensor_batch[name] = object_array(values)
        for row, value in zip(self.rows, values, strict=True):
            row[name] = value

    @rule(number=NUMBERS)
    def write_in_place(self, number: int) -> None:
        if "x" in self.batch:
            assert self.batch.batch is not None
            self.batch.batch["x"] += number
            for row in self.rows:
                row["x"] = row["x"] + number

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if name in self.batch:
            del self.batch[name]
            for row in self.rows:
                del row[name]

    @rule(name=NAMES, other=NAMES)
    def rename(self, name: str, other: str) -> None:
        if name not in self.batch or name == other:
            return
        old, new = ([name, other], [other, name]) if other in self.batch else ([name], [other])
        self.batch.rename(old, new)
        self.rows = [
            {dict(zip(old, new, strict=True)).get(key, key): row[key] for key in row} for row in self.rows
        ]

    @rule(name=NAMES)
    def pop_and_unite(self, name: str) -> None:
        if name in self.batch:
            taken = self.batch.pop(**{self.store(name): [name]})
            assert name not in self.batch
            self.batch.union(taken)

    def store(self, name: str) -> str:
        return "non_tensor_batch_keys" if isinstance(self.batch[name], np.ndarray) else "batch_keys"

    @rule(data=st.data())
    def unite_by_identity(self, data: st.DataObject) -> None:
        order = data.draw(st.permutations(range(len(self.rows))))
        other = DataProto.from_single_dict({"seen": torch.tensor(order, dtype=torch.int64)})
        if len(set(self.ids)) == len(self.ids):
            other.row_ids = [self.ids[place] for place in order]
            self.batch = self.batch.select().union(other, align=True)
            self.batch.pop("seen") if not self.rows else self.check_seen()

    def check_seen(self) -> None:
        assert self.batch.pop("seen")["seen"].tolist() == list(range(len(self.rows)))

    @rule(number=NUMBERS)
    def fail_to_unite(self, number: int) -> None:
        if self.rows and "x" in self.batch:
            other = self.batch.select(["x"], []).clone()
            other["x"] += 1
            other["d2"] = torch.full((len(self.rows),), number)
            try:
                self.batch.union(other)
            except ConflictError:
                return
            raise AssertionError("a conflict was not reported")

    @rule(parts=st.integers(1, 4))
    def chunk_and_concat(self, parts: int) -> None:
        self.batch = DataProto.concat(self.batch.chunk(parts))

    @rule(start=st.integers(-4, 4), stop=st.integers(-4, 6), step=st.sampled_from([1, 2, -1]))
    def cut(self, start: int, stop: int, step: int) -> None:
        self.take(self.batch[start:stop:step], list(range(len(self.rows)))[start:stop:step])

    @rule(data=st.data())
    def reorder(self, data: st.DataObject) -> None:
        order = data.draw(st.permutations(range(len(self.rows))))
        self.take(self.batch.reorder(order), list(order))

    @precondition(lambda self: 0 < len(self.rows) < 12)
    @rule(times=st.integers(1, 2), interleave=st.booleans())
    def repeat(self, times: int, interleave: bool) -> None:
        places = np.arange(len(self.rows))
        chosen = places.repeat(times) if interleave else np.tile(places, times)
        self.take(self.batch.repeat(times, interleave), chosen.tolist())

    @rule(divisor=st.integers(1, 5))
    def pad_and_unpad(self, divisor: int) -> None:
        padded = self.batch.pad_to_divisor(divisor)
        assert len(padded) % divisor == 0
        self.batch = padded.unpad()

    @rule()
    def group_and_concat(self) -> None:
        if "name" in self.batch and self.rows:
            groups = self.batch.group_by("name")
            order = [place for name in groups for place, row in enumerate(self.rows) if row["name"] == name]
            self.take(DataProto.concat(list(groups.values())), order)

    @rule(protocol=st.integers(2, 5))
    def travel(self, protocol: int) -> None:
        self.batch = pickle.loads(pickle.dumps(self.batch, protocol=protocol))

    @rule()
    def clone(self) -> None:
        old, self.batch = self.batch, self.batch.clone()
        if "x" in old and self.rows:
            old["x"].fill_(-1)

    @rule(key=st.sampled_from(["step", "extra"]), number=NUMBERS)
    def write_meta(self, key: str, number: int) -> None:
        parts = self.batch.chunk(2)
        parts[0].meta_info[key] = "only in this part"
        self.batch.meta_info[key] = number
        self.meta[key] = number

    @rule()
    def refuse_what_is_wrong(self) -> None:
        rows = len(self.rows)
        for error, wrong in (
            (ColumnError, lambda: self.batch.update({"bad": torch.zeros(rows + 1)})),
            (RowIndexError, lambda: self.batch[rows]),
            (RowIndexError, lambda: self.batch.reorder([0] * (rows + 1))),
        ):
            try:
                wrong()
            except error:
                continue
            if rows or error is not ColumnError:
                raise AssertionError(f"{error.__name__} was not raised")
            del self.batch["bad"]

    @invariant()
    def the_batch_and_the_model_agree(self) -> None:
        assert len(self.batch) == len(self.rows)
        assert same(as_rows(self.batch), self.rows)
        assert self.batch.row_ids is not None
        assert self.batch.row_ids.tolist() == self.ids
        assert self.batch.meta_info == self.meta


TestBatchMachine = BatchMachine.TestCase
TestBatchMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
