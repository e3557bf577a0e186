"""One forward pass of a Hugging Face model over padded rows."""

from typing import cast

import torch
from torch import Tensor, nn

from roll_protocol import DataProto
from roll_strategies.counts import columns_of
from roll_strategies.errors import BatchError

# b rows   S positions   V vocabulary


def positions_of(attention_mask: Tensor) -> Tensor:
    """Returns positions [b, S] that count real tokens only, so that padding on the left shifts nothing."""
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


def model_inputs(micro: DataProto) -> tuple[Tensor, Tensor, Tensor]:
    """Returns `input_ids`, `attention_mask` (all ones when missing) and `position_ids` of a micro-batch.

    Raises:
        BatchError: there are no `input_ids`.
    """
    columns = columns_of(micro)
    if "input_ids" not in columns:
        raise BatchError(f"the batch has no column 'input_ids'; its tensor columns are {sorted(columns)}")
    ids = columns["input_ids"]
    mask = columns.get("attention_mask")
    if mask is None:
        mask = torch.ones_like(ids)
    return ids, mask, columns.get("position_ids", positions_of(mask))


def output_of(result: object) -> Tensor:
    """Returns the logits (or head values) in a model's result."""
    logits = getattr(result, "logits", result)
    return cast("Tensor", logits)


def forward_padded(model: nn.Module, micro: DataProto) -> Tensor:
    """Returns the model's output [b, S, V] over padded rows."""
    ids, mask, positions = model_inputs(micro)
    return output_of(model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False))
