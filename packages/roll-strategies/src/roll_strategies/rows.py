"""How long rows are."""

from roll_protocol import DataProto
from roll_strategies.counts import columns_of


def row_lengths(batch: DataProto) -> list[int]:
    """Returns the number of real tokens of each row; the width of the batch where there is no attention
    mask."""
    columns = columns_of(batch)
    mask = columns.get("attention_mask")
    if mask is not None:
        return [int(count) for count in mask.sum(-1).tolist()]
    width = columns["input_ids"].shape[1] if "input_ids" in columns else 0
    return [width] * len(batch)
