"""The columns that each step of supervised fine-tuning needs and produces."""

from roll_protocol import DataSchema

# S positions of a row

_ROWS = {"input_ids": "int64[S]", "attention_mask": "int64[S]", "labels": "int64[S]"}

ROWS = DataSchema("rows", produces=_ROWS)
TRAIN = DataSchema("train", needs=_ROWS)
SCHEMAS = (ROWS, TRAIN)
"""Every step, in the order in which they run."""
