"""Schemas: what is missing or wrong is said by name."""

import json

import numpy as np
import pytest
import torch

from roll_protocol import DataProto, DataSchema, FieldSpec, SchemaError, field_table, field_uses, object_array

SCHEMA = DataSchema(
    "train",
    needs={
        "ids": "int64[T]",
        "mask": "any[T]",
        "image": "float32[3,H,W]?",
        "text": "object",
        "turns": "int64[~N]",
    },
    produces={"logp": "float32[T]"},
)


def make_batch(**columns: object) -> DataProto:
    given = {
        "ids": torch.zeros(2, 5, dtype=torch.int64),
        "mask": torch.zeros(2, 5, dtype=torch.bool),
        "text": object_array(["a", "b"]),
        "turns": torch.nested.nested_tensor_from_jagged(torch.arange(3), torch.tensor([0, 1, 3])),
    }
    return DataProto.from_single_dict({**given, **columns})  # type: ignore[dict-item]  # tensors and arrays


def test_a_batch_that_fits_gives_the_named_sizes() -> None:
    assert SCHEMA.validate(make_batch()) == {"T": 5}
    assert SCHEMA.validate(make_batch(image=torch.zeros(2, 3, 4, 6))) == {"T": 5, "H": 4, "W": 6}
    assert SCHEMA.validate_output(
        DataProto.from_single_dict({"logp": torch.zeros(2, 5)}), sizes={"T": 5}
    ) == {"T": 5}


def test_everything_that_is_missing_or_wrong_is_named_at_once() -> None:
    batch = make_batch(image=torch.zeros(2, 1, 4, 6), ids=torch.zeros(2, 5))
    batch.pop(non_tensor_batch_keys="text")
    with pytest.raises(SchemaError) as error:
        SCHEMA.validate(batch)
    assert str(error.value).splitlines() == [
        "step 'train' needs columns that the batch does not have as asked:",
        "  ids: has dtype float32, not int64",
        "  image: has row shape [1, 4, 6], where [3, 'H', 'W'] asks for 3",
        "  text: missing, object",
        "the batch has ['ids', 'mask', 'turns', 'image']",
    ]


def test_one_name_has_one_size_in_all_columns() -> None:
    with pytest.raises(SchemaError, match=r"mask: has row shape \[4\], where \['T'\] asks for T = 5"):
        SCHEMA.validate(make_batch(mask=torch.zeros(2, 4)))
    with pytest.raises(SchemaError, match="asks for T = 7"):
        SCHEMA.validate(make_batch(), sizes={"T": 7})


@pytest.mark.parametrize(
    ("spec", "shape", "fits"),
    [
        ("any", (2,), True),
        ("any[*]", (2, 9), True),
        ("any[...]", (2, 1, 2, 3), True),
        ("any[...]", (2,), True),
        ("any[4,...]", (2, 4, 1), True),
        ("any[4,...]", (2, 5, 1), False),
        ("any[4]", (2, 4, 1), False),
        ("any[~T]", (2, 4), False),
        ("any[T,T]", (2, 4, 4), True),
        ("any[T,T]", (2, 4, 5), False),
    ],
)
def test_shapes_are_matched_as_written(spec: str, shape: tuple[int, ...], fits: bool) -> None:
    batch = DataProto.from_single_dict({"x": torch.zeros(shape)})
    schema = DataSchema("s", needs={"x": spec})
    if fits:
        schema.validate(batch)
    else:
        with pytest.raises(SchemaError, match="x: has row shape"):
            schema.validate(batch)


def test_a_jagged_column_needs_a_jagged_size() -> None:
    with pytest.raises(SchemaError, match="turns: has row shape"):
        DataSchema("s", needs={"turns": "int64[T]"}).validate(make_batch())
    with pytest.raises(SchemaError, match="f: has dtype float64"):
        DataSchema("s", needs={"f": "float32"}).validate(make_batch(f=np.zeros(2)))


@pytest.mark.parametrize("text", ["", "int64[", "int64[T,]", "int64[...,T]", "int 64[-1]", "[T]"])
def test_a_malformed_field_is_an_error(text: str) -> None:
    with pytest.raises(SchemaError, match="field"):
        FieldSpec.parse(text)


@pytest.mark.parametrize("text", ["int64", "int64[T]", "float32[T,4]?", "object?", "any[*,...]", "int64[~T]"])
def test_the_short_form_comes_back(text: str) -> None:
    assert str(FieldSpec.parse(text)) == text


def test_a_schema_is_plain_json_and_comes_back() -> None:
    again = DataSchema.from_json(json.loads(json.dumps(SCHEMA.to_json())))
    assert again == SCHEMA
    assert hash(again) == hash(SCHEMA)
    with pytest.raises(SchemaError, match="'step', 'needs' and 'produces'"):
        DataSchema.from_json({"step": 1})


ROLLOUT = DataSchema("rollout", needs={"ids": "int64[P]"}, produces={"responses": "int64[R]"})
REWARD = DataSchema(
    "reward", needs={"responses": "int64[R]", "answer": "object?"}, produces={"rewards": "float32"}
)


def test_the_table_of_a_pipeline_names_producers_and_consumers() -> None:
    assert field_table([ROLLOUT, REWARD], given=["ids"]).splitlines() == [
        "column     as        produced by  consumed by",
        "ids        int64[P]  (given)      rollout",
        "responses  int64[R]  rollout      reward",
        "rewards    float32   reward       -",
        "answer     object    -            reward",
    ]
    assert [use.name for use in field_uses([ROLLOUT, REWARD], given=["ids"]) if not use.consumers] == [
        "rewards"
    ]


def test_a_column_that_nothing_produces_in_time_is_an_error() -> None:
    with pytest.raises(SchemaError, match="reward: responses"):
        field_uses([REWARD, ROLLOUT], given=["ids"])
