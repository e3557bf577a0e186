"""One `generate` call: prompts in micro-batches, answers collected in order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn

from roll_protocol import DataProto
from roll_strategies.counts import columns_of
from roll_strategies.errors import BatchError, StrategyConfigError
from roll_strategies.hf.decode import Texts, decode
from roll_strategies.hf.request import Request, read_request

# B prompts   n answers a prompt   R response positions


class _Tokenizer(Protocol):
    def decode(self, token_ids: Sequence[int]) -> str: ...


class Generation:
    """A running `generate` call."""

    def __init__(
        self,
        model: nn.Module,
        ids: Tensor,
        mask: Tensor,
        request: Request,
        *,
        rows: int,
        request_ids: Sequence[str],
        aborted: Callable[[str], bool],
        texts: Texts | None,
    ) -> None:
        self._model, self._ids, self._mask, self._request, self._rows = model, ids, mask, request, rows
        self.request_ids = request_ids
        self._is_aborted, self._texts = aborted, texts
        answers = len(ids) * request.num_return_sequences
        self._tokens: list[list[int]] = [[] for _ in range(answers)]
        self._log_probs: list[list[float]] = [[] for _ in range(answers)]
        self._reasons: list[str] = ["abort"] * answers

    @classmethod
    def of(
        cls,
        batch: DataProto,
        config: Mapping[str, object],
        *,
        model: nn.Module,
        tokenizer: object | None,
        seed: int,
        rows: int,
        device: torch.device,
        aborted: Callable[[str], bool],
    ) -> "Generation":
        """Returns a generation that has not started.

        Raises:
            BatchError: a column is missing or has the wrong shape, or a prompt is not padded on the left.
            StrategyConfigError: see `read_request`.
        """
        columns = columns_of(batch)
        for name in ("input_ids", "attention_mask"):
            if name not in columns:
                raise BatchError(f"generate needs the column {name!r}; the batch has {sorted(columns)}")
        ids, mask = columns["input_ids"], columns["attention_mask"]
        if len(batch) and not bool(mask[:, -1].bool().all()):
            row = int((~mask[:, -1].bool()).nonzero()[0])
            raise BatchError(
                f"prompts must be padded on the left, but the last position of row {row} is padding"
            )
        request = read_request(
            config,
            columns,
            rows=len(batch),
            default_seed=seed,
            default_stop=_stop_ids(model),
            default_pad=_pad_id(model, tokenizer),
        )
        texts = None
        if request.stop_strings:
            if tokenizer is None:
                raise StrategyConfigError(
                    "generation_config.stop_strings needs a tokenizer, and there is none beside the model; "
                    "save one there"
                )
            texts = cast("_Tokenizer", tokenizer).decode
        names = batch.non_tensor_batch.get("request_ids")
        request_ids = (
            [str(name) for name in names] if names is not None else [str(row) for row in range(len(batch))]
        )
        watch = aborted if names is not None else _never
        return cls(
            model,
            ids.to(device),
            mask.to(device),
            request,
            rows=rows,
            request_ids=request_ids,
            aborted=watch,
            texts=texts,
        )

    def tokens(self) -> Iterator[tuple[int, int]]:
        """Yields `(answer, token)`, micro-batch after micro-batch."""
        count = self._request.num_return_sequences
        for start in range(0, len(self._ids), self._rows):
            part = slice(start, start + self._rows)
            first = start * count
            request = _part(self._request, slice(first, (start + self._rows) * count))

            def aborted(answer: int, start: int = start) -> bool:
                return self._is_aborted(self.request_ids[start + answer // count])

            steps = decode(
                self._model, self._ids[part], self._mask[part], request, aborted=aborted, texts=self._texts
            )
            for step in steps:
                numbers = [first + answer for answer in step.answers.tolist()]
                for number, reason in zip(numbers, step.reasons, strict=True):
                    if reason is not None:
                        self._reasons[number] = reason
                drawn = zip(numbers, step.tokens.tolist(), step.log_probs.tolist(), strict=False)
                for number, token, log_prob in drawn:
                    self._tokens[number].append(token)
                    self._log_probs[number].append(log_prob)
                    yield number, token

    def result(self) -> DataProto:
        """Returns the answers so far, padded on the right to the longest allowed length."""
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


def _never(request_id: str) -> bool:
    return False


def _part(request: Request, rows: slice) -> Request:
    """Returns the request for some answers."""
    index = torch.arange(len(request.sampling.seeds))[rows]
    return replace(request, sampling=request.sampling.rows(index))


def _stop_ids(model: nn.Module) -> list[int]:
    for name in ("generation_config", "config"):
        found: Any = getattr(getattr(model, name, None), "eos_token_id", None)  # Any: int, list or None
        if found is not None:
            return list(found) if isinstance(found, list | tuple) else [int(found)]
    return []


def _pad_id(model: nn.Module, tokenizer: object | None) -> int:
    for owner in (tokenizer, getattr(model, "generation_config", None), getattr(model, "config", None)):
        found = getattr(owner, "pad_token_id", None)
        if isinstance(found, int):
            return found
    return 0
