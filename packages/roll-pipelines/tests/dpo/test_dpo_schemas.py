"""The declared columns of supervised fine-tuning, preference training and distillation."""

import pytest
import torch

from roll_pipelines.data.pairs import EncodedPair, collate_pairs
from roll_pipelines.distill import DistillPipeline
from roll_pipelines.dpo import DPOPipeline
from roll_pipelines.dpo.schemas import PAIRS, TRAIN
from roll_pipelines.sft import SFTPipeline
from roll_protocol import DataSchema, SchemaError, field_uses

ONE = EncodedPair((5, 6), (7, 1), (8, 9, 1))


@pytest.mark.parametrize("schemas", [SFTPipeline.schemas, DPOPipeline.schemas, DistillPipeline.schemas])
def test_every_column_has_a_producer_a_consumer_and_one_form(schemas: tuple[DataSchema, ...]) -> None:
    uses = field_uses(schemas)
    assert all(use.producers and use.consumers and len(use.specs) == 1 for use in uses)


def test_collated_pairs_are_what_the_first_step_promises() -> None:
    batch = collate_pairs([ONE, ONE], pad_token_id=0, paired=True)
    assert PAIRS.validate_output(batch) == {"S": 5}


def test_pairs_without_the_reference_or_of_one_answer_are_refused_before_the_step() -> None:
    batch = collate_pairs([ONE], pad_token_id=0, paired=True)
    with pytest.raises(SchemaError, match="ref_log_probs: missing"):
        TRAIN.validate(batch)
    batch["ref_log_probs"] = torch.zeros(1, 3)
    with pytest.raises(SchemaError, match="ref_log_probs: has row shape"):
        TRAIN.validate(batch)
