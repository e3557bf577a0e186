"""The declared columns of RLVR: each that is needed is produced before, and real batches fit."""

import pytest
import torch

from roll_pipelines.data import Problem, character_tokenizer
from roll_pipelines.rlvr.schemas import PROMPTS, SCHEMAS, TRAIN
from roll_pipelines.rollouts import prompt_batch
from roll_protocol import SchemaError


def test_every_needed_column_is_produced_by_an_earlier_step() -> None:
    produced: set[str] = set()
    for schema in SCHEMAS:
        missing = [
            name for name, field in schema.needs.items() if name not in produced and not field.optional
        ]
        assert not missing, (schema.step, missing)
        produced |= set(schema.produces)


def test_prompts_are_as_declared() -> None:
    problem = Problem(prompt="ab=", answer="ba", entry={})
    batch = prompt_batch([problem] * 2, character_tokenizer("ab="), prompt_length=4, seed=0, step=0)
    assert PROMPTS.validate_output(batch) == {"P": 4}


def test_a_wrong_column_is_named_before_anything_is_learnt() -> None:
    batch = prompt_batch([], character_tokenizer("ab="), prompt_length=4, seed=0, step=0)
    batch["advantages"] = torch.zeros(0, 3, dtype=torch.float64)
    with pytest.raises(
        SchemaError, match=r"(?s)'train' needs .*response_mask: missing.*advantages: has dtype float64"
    ):
        TRAIN.validate(batch)
