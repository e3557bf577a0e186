"""Where rows come from: generated problems, supervised rows, a character tokenizer and a tiny model."""

from roll_pipelines.data.problems import Problem, ProblemSource, ProblemStream, TaskConfig, held_out_problems
from roll_pipelines.data.supervised import (
    EncodedRow,
    EncodedRows,
    SupervisedRow,
    collate,
    encode_rows,
    epoch_order,
)
from roll_pipelines.data.tiny_model import TinyModelConfig, save_tiny_model
from roll_pipelines.data.tokenizer import DEFAULT_ALPHABET, character_tokenizer

__all__ = [
    "DEFAULT_ALPHABET",
    "EncodedRow",
    "EncodedRows",
    "Problem",
    "ProblemSource",
    "ProblemStream",
    "SupervisedRow",
    "TaskConfig",
    "TinyModelConfig",
    "character_tokenizer",
    "collate",
    "encode_rows",
    "epoch_order",
    "held_out_problems",
    "save_tiny_model",
]
