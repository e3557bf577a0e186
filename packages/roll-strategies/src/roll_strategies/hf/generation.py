"""One `generate` call: prompts in micro-batches, answers collected in order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from roll_protocol import DataProto
from roll_strategies.answers import Answers, pad_id_of, prompts_of, request_ids_of, stop_ids_of
from roll_strategies.counts import columns_of
from roll_strategies.errors import StrategyConfigError
from roll_strategies.hf.decode import Texts, decode
from roll_strategies.request import Request, read_request

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
        self._answers = Answers(request)

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
        ids, mask = prompts_of(batch)
        request = read_request(
            config,
            columns_of(batch),
            rows=len(batch),
            default_seed=seed,
            default_stop=stop_ids_of(model),
            default_pad=pad_id_of(model, tokenizer),
        )
        texts = None
        if request.stop_strings:
            if tokenizer is None:
                raise StrategyConfigError(
                    "generation_config.stop_strings needs a tokenizer, and there is none beside the model; "
                    "save one there"
                )
            texts = cast("_Tokenizer", tokenizer).decode
        names = request_ids_of(batch)
        request_ids = names or [str(row) for row in range(len(batch))]
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
                        self._answers.end(number, reason)
                drawn = zip(numbers, step.tokens.tolist(), step.log_probs.tolist(), strict=False)
                for number, token, log_prob in drawn:
                    self._answers.add(number, [token], [log_prob])
                    yield number, token

    def result(self) -> DataProto:
        """Returns the answers so far, padded on the right to the longest allowed length."""
        return self._answers.batch()


def _never(request_id: str) -> bool:
    return False


def _part(request: Request, rows: slice) -> Request:
    """Returns the request for some answers."""
    index = torch.arange(len(request.sampling.seeds))[rows]
    return replace(request, sampling=request.sampling.rows(index))
