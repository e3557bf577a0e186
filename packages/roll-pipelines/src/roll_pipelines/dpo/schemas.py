"""The columns that each step of preference training needs and produces."""

from roll_protocol import DataSchema

# 2 answers of a pair: the preferred one, then the other one   S positions of an answer behind its prompt

_ANSWERS = {"input_ids": "int64[2,S]", "attention_mask": "int64[2,S]", "response_mask": "int64[2,S]"}

PAIRS = DataSchema("pairs", produces={**_ANSWERS, "pair_mask": "int64[2,S]", "present": "bool[2]"})
REFERENCE = DataSchema("reference", needs=_ANSWERS, produces={"ref_log_probs": "float32[2]"})
TRAIN = DataSchema(
    "train",
    needs={**_ANSWERS, "pair_mask": "int64[2,S]", "present": "bool[2]", "ref_log_probs": "float32[2]"},
)
SCHEMAS = (PAIRS, REFERENCE, TRAIN)
"""Every step, in the order in which they run."""
