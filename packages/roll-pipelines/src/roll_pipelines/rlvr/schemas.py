"""The columns that each step of RLVR needs and produces."""

from roll_protocol import DataSchema

# P prompt positions   R response positions   S positions of a row   T predicted positions (S - 1)

PROMPTS = DataSchema(
    "prompts",
    produces={
        "input_ids": "int64[P]",
        "attention_mask": "int64[P]",
        "seeds": "int64",
        "prompt": "object",
        "expected": "object",
        "entry": "object",
    },
)
GENERATE = DataSchema(
    "generate",
    needs={"input_ids": "int64[P]", "attention_mask": "int64[P]", "seeds": "int64"},
    produces={
        "responses": "int64[R]",
        "response_lengths": "int64",
        "infer_logprobs": "float32[R]",
        "finish_reasons": "object",
    },
)
REWARD = DataSchema(
    "reward",
    needs={
        "responses": "int64[R]",
        "response_lengths": "int64",
        "finish_reasons": "object",
        "prompt": "object",
        "expected": "object",
        "entry": "object",
    },
    produces={"rewards": "float32"},
)
ROWS = DataSchema(
    "rows",
    produces={
        "input_ids": "int64[S]",
        "attention_mask": "int64[S]",
        "position_ids": "int64[S]",
        "response_mask": "int64[S]",
        "infer_logprobs": "float32[T]",
        "responses": "int64[R]",
        "response_lengths": "int64",
        "finish_reasons": "object",
        "prompt": "object",
        "expected": "object",
        "entry": "object",
    },
)
SCORE = DataSchema(
    "score",
    needs={
        "input_ids": "int64[S]",
        "attention_mask": "int64[S]",
        "position_ids": "int64[S]?",
        "response_mask": "int64[S]",
    },
    produces={"old_log_probs": "float32[T]", "ref_log_probs": "float32[T]?"},
)
ADVANTAGES = DataSchema(
    "advantages",
    needs={"rewards": "float32", "response_mask": "int64[S]"},
    produces={"advantages": "float32[T]"},
)
TRAIN = DataSchema(
    "train",
    needs={
        "input_ids": "int64[S]",
        "attention_mask": "int64[S]",
        "position_ids": "int64[S]?",
        "response_mask": "int64[S]",
        "old_log_probs": "float32[T]",
        "ref_log_probs": "float32[T]?",
        "advantages": "float32[T]",
    },
)
SCHEMAS = (PROMPTS, GENERATE, ROWS, REWARD, SCORE, ADVANTAGES, TRAIN)
"""Every step, in the order in which they run."""
