"""The prompts that a `generate` call brings and the answers that it gives back, whatever the engine."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from roll_protocol import DataProto
from roll_strategies.counts import columns_of
from roll_strategies.errors import BatchError
from roll_strategies.request import Request

# B prompts   n answers a prompt   P prompt positions   R response positions


class Answers:
    """The tokens of every answer of one call, filled while they are sampled.

    Args:
        request: what was asked for; its sampling has one entry per answer.
    """

    def __init__(self, request: Request) -> None:
        count = len(request.sampling.seeds)
        self._request = request
        self._tokens: list[list[int]] = [[] for _ in range(count)]
        self._log_probs: list[list[float]] = [[] for _ in range(count)]
        self._reasons: list[str] = ["abort"] * count

    def add(self, answer: int, tokens: Sequence[int], log_probs: Sequence[float]) -> None:
        """Appends tokens and their log-probabilities to one answer."""
        assert len(tokens) == len(log_probs)
        self._tokens[answer].extend(tokens)
        self._log_probs[answer].extend(log_probs)

    def end(self, answer: int, reason: str) -> None:
        """Says why an answer ended: `stop`, `length` or `abort`; one of which nobody says so was aborted."""
        self._reasons[answer] = reason

    def batch(self) -> DataProto:
        """Returns the answers so far, padded on the right to the width that the request gives.

        Returns:
            `responses` [B*n, R] int64, `response_lengths` [B*n] int64, `infer_logprobs` [B*n, R] float32 and
            the object column `finish_reasons`.
        """
        lengths = torch.tensor([len(tokens) for tokens in self._tokens], dtype=torch.int64)
        width = self._request.width
        responses = torch.full((len(self._tokens), width), self._request.pad_token_id, dtype=torch.int64)
        log_probs = torch.zeros(len(self._tokens), width, dtype=torch.float32)
        for row, (tokens, values) in enumerate(zip(self._tokens, self._log_probs, strict=True)):
            responses[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.int64)
            log_probs[row, : len(tokens)] = torch.tensor(values, dtype=torch.float32)
        reasons = np.empty(len(self._tokens), dtype=object)
        reasons[:] = self._reasons
        return DataProto.from_single_dict(
            {
                "responses": responses,
                "response_lengths": lengths,
                "infer_logprobs": log_probs,
                "finish_reasons": reasons,
            }
        )


def prompts_of(batch: DataProto) -> tuple[Tensor, Tensor]:
    """Returns ids and mask [B, P] of the prompts.

    Raises:
        BatchError: a column is missing, or a prompt is not padded on the left.
    """
    columns = columns_of(batch)
    for name in ("input_ids", "attention_mask"):
        if name not in columns:
            raise BatchError(f"generate needs the column {name!r}; the batch has {sorted(columns)}")
    ids, mask = columns["input_ids"], columns["attention_mask"]
    if len(batch) and not bool(mask[:, -1].bool().all()):
        row = int((~mask[:, -1].bool()).nonzero()[0])
        raise BatchError(f"prompts must be padded on the left, but the last position of row {row} is padding")
    return ids, mask


def request_ids_of(batch: DataProto) -> list[str] | None:
    """Returns the names by which `abort_requests` knows the prompts; None when the batch gives none."""
    names = batch.non_tensor_batch.get("request_ids")
    return None if names is None else [str(name) for name in names]


def stop_ids_of(model: nn.Module) -> list[int]:
    """Returns the tokens that end an answer of a model: those of its generation settings, or its own."""
    for name in ("generation_config", "config"):
        found: Any = getattr(getattr(model, name, None), "eos_token_id", None)  # Any: int, list or None
        if found is not None:
            return list(found) if isinstance(found, list | tuple) else [int(found)]
    return []


def pad_id_of(model: nn.Module, tokenizer: object | None) -> int:
    """Returns the token that fills answers up: the tokenizer's, or the model's, or 0."""
    for owner in (tokenizer, getattr(model, "generation_config", None), getattr(model, "config", None)):
        found = getattr(owner, "pad_token_id", None)
        if isinstance(found, int):
            return found
    return 0
