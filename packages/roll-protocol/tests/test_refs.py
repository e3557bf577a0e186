"""References: resolved by whoever made them, in order, without importing Ray."""

from collections.abc import Sequence

import pytest
import torch

from roll_protocol import DataProto, UnresolvedReferenceError, register_ref_resolver


class Ref:
    """A reference of a library that has a resolver."""

    def __init__(self, value: object) -> None:
        self.value = value


class Stranger(Ref):
    """A reference that nobody resolves."""


Ref.__module__ = "some_library.refs"
Stranger.__module__ = "strange_library.refs"
calls: list[tuple[int, float | None]] = []


def resolve(refs: Sequence[object], *, timeout_s: float | None) -> list[object]:
    calls.append((len(refs), timeout_s))
    return [ref.value for ref in refs if isinstance(ref, Ref)]


@pytest.fixture(autouse=True)
def resolver() -> None:
    register_ref_resolver("some_library", resolve)
    calls.clear()


def make_batch(*values: int) -> DataProto:
    return DataProto.from_single_dict({"x": torch.tensor(values)})


def test_references_and_batches_are_joined_in_order_with_one_call_of_the_resolver() -> None:
    refs = [Ref(make_batch(1)), make_batch(2), Ref(make_batch(3, 4))]
    assert DataProto.materialize_concat(refs, timeout_s=5) == make_batch(1, 2, 3, 4)
    assert calls == [(2, 5)]
    assert DataProto.materialize_concat(tuple(refs)) == make_batch(1, 2, 3, 4)
    assert DataProto.materialize_concat(refs[0]) == make_batch(1)


def test_batches_need_no_resolver() -> None:
    assert DataProto.materialize_concat(make_batch(1)) == make_batch(1)
    assert DataProto.materialize_concat([]) == DataProto()


def test_a_reference_to_something_else_is_an_error() -> None:
    with pytest.raises(UnresolvedReferenceError, match="reference 1 of 2 stands for a dict"):
        DataProto.materialize_concat([Ref(make_batch(1)), Ref({"loss": 1})])


def test_a_reference_that_nobody_knows_is_an_error_with_a_way_out() -> None:
    way_out = r"strange_library.refs.Stranger.*register_ref_resolver\('strange_library'"
    with pytest.raises(UnresolvedReferenceError, match=way_out):
        DataProto.materialize_concat([Stranger(1)])
    with pytest.raises(UnresolvedReferenceError, match=way_out):
        DataProto.materialize_concat([make_batch(1), Ref(make_batch(2)), Stranger(1)])
