"""The columns that each step of distillation needs and produces."""

from roll_protocol import DataSchema

# S positions of a row   K entries that the teacher sends: `logits_topk`, or the whole vocabulary

_ROWS = {"input_ids": "int64[S]", "attention_mask": "int64[S]", "labels": "int64[S]"}
_TAUGHT = {"teacher_log_probs": "float32[S,K]", "teacher_indices": "int32[S,K]?"}

ROWS = DataSchema("rows", produces=_ROWS)
TEACHER = DataSchema("teacher", needs=_ROWS, produces=_TAUGHT)
STUDENT = DataSchema("student", needs={**_ROWS, **_TAUGHT})
SCHEMAS = (ROWS, TEACHER, STUDENT)
"""Every step, in the order in which they run."""
