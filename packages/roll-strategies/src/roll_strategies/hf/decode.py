"""The sampling loop: one forward pass a token, over the rows that are still going."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from roll_strategies.hf.forward import positions_of
from roll_strategies.hf.sampling import draw, uniforms
from roll_strategies.request import Request, Sampling

# B prompts   N answers   P prompt positions   R response positions   V vocabulary


@dataclass(frozen=True, slots=True)
class Step:
    """The tokens of one step, one per answer that was still going."""

    answers: Tensor
    """[m] int64, numbers of the answers."""
    tokens: Tensor
    """[m] int64."""
    log_probs: Tensor
    """[m] float32."""
    reasons: tuple[str | None, ...]
    """Why an answer ended with this step, `stop`, `length` or `abort`; None when it goes on."""


Aborted = Callable[[int], bool]
"""Whether the answer of that number has been aborted."""
Texts = Callable[[list[int]], str]
"""Token ids to text, for stop strings."""


def decode(
    model: nn.Module,
    input_ids_BP: Tensor,
    attention_mask_BP: Tensor,
    request: Request,
    *,
    aborted: Aborted = lambda answer: False,
    texts: Texts | None = None,
) -> Iterator[Step]:
    """Yields the tokens of every answer, step by step, until all have ended.

    Args:
        model: a causal language model.
        input_ids_BP: prompts, padded on the left.
        attention_mask_BP: 1 for tokens, 0 for padding.
        request: what is asked for; its sampling has one entry per answer.
        aborted: asked before each step for every answer that is still going.
        texts: needed when the request has stop strings.
    """
    state = _Rows.prefill(model, input_ids_BP, attention_mask_BP, request)
    history: dict[int, list[int]] = {answer: [] for answer in state.answers.tolist()}
    step = 0
    while len(state.answers):
        gone = [aborted(answer) for answer in state.answers.tolist()]
        if any(gone):
            out = torch.tensor(gone)
            empty = torch.empty(0, dtype=torch.int64)
            yield Step(state.answers[out], empty, empty.float(), ("abort",) * int(out.sum()))
            state.keep(~out)
            if not len(state.answers):
                return
        tokens, log_probs = state.draw(step)
        reasons = _reasons(state, tokens, step, request, history, texts)
        yield Step(state.answers, tokens, log_probs, reasons)
        going = torch.tensor([reason is None for reason in reasons])
        state.keep(going)
        if len(state.answers):
            state.advance(model, tokens[going])
        step += 1


def _reasons(
    state: "_Rows",
    tokens: Tensor,
    step: int,
    request: Request,
    history: dict[int, list[int]],
    texts: Texts | None,
) -> tuple[str | None, ...]:
    reasons: list[str | None] = []
    window = max((len(text) for text in request.stop_strings), default=0) + 1
    for row, (answer, token) in enumerate(zip(state.answers.tolist(), tokens.tolist(), strict=True)):
        history[answer].append(token)
        reason = None
        if token in request.stop_ids:
            reason = "stop"
        elif request.stop_strings and texts is not None:
            tail = texts(history[answer][-window:])
            reason = "stop" if any(text in tail for text in request.stop_strings) else None
        if reason is None and step + 1 >= int(state.sampling.max_new_tokens[row]):
            reason = "length"
        reasons.append(reason)
    return tuple(reasons)


class _Rows:
    """The answers that are still going, and the model's cache for them."""

    def __init__(
        self,
        *,
        logits: Tensor,
        mask: Tensor,
        cache: Any,
        sampling: Sampling,
        seen: Tensor | None,
        penalty: float,
    ) -> None:  # Any: transformers' cache has no protocol
        self.logits, self.mask, self.cache, self.sampling = logits, mask, cache, sampling
        self.seen, self.penalty = seen, penalty
        self.answers = torch.arange(len(sampling.seeds))

    @classmethod
    def prefill(cls, model: nn.Module, ids_BP: Tensor, mask_BP: Tensor, request: Request) -> "_Rows":
        used = mask_BP.any(0).nonzero()
        start = int(used[0]) if len(used) else 0
        ids_BP, mask_BP = ids_BP[:, start:], mask_BP[:, start:]
        config: Any = model.config  # Any: nn.Module does not declare it
        cache = transformers.DynamicCache(config=config)
        result = model(
            input_ids=ids_BP,
            attention_mask=mask_BP,
            position_ids=positions_of(mask_BP),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        count = request.num_return_sequences
        logits, mask = result.logits[:, -1], mask_BP
        if count > 1:
            cache.batch_repeat_interleave(count)
            logits, mask = logits.repeat_interleave(count, 0), mask.repeat_interleave(count, 0)
        seen = None
        if request.repetition_penalty != 1.0:
            seen = torch.zeros_like(logits, dtype=torch.bool)
            ids = ids_BP.repeat_interleave(count, 0)
            # Padding marks nothing: it writes into a column that is cut off again.
            wide = torch.zeros(len(ids), logits.shape[-1] + 1, dtype=torch.bool, device=logits.device)
            seen = wide.scatter(1, torch.where(mask.bool(), ids, logits.shape[-1]), True)[:, :-1]
        return cls(
            logits=logits,
            mask=mask,
            cache=cache,
            sampling=request.sampling,
            seen=seen,
            penalty=request.repetition_penalty,
        )

    def draw(self, step: int) -> tuple[Tensor, Tensor]:
        logits = self.logits
        if self.seen is not None:
            lowered = torch.where(logits > 0, logits / self.penalty, logits * self.penalty)
            logits = torch.where(self.seen, lowered, logits)
        uniform = uniforms(
            self.sampling.seeds, self.sampling.samples, torch.full_like(self.sampling.seeds, step)
        )
        tokens, log_probs = draw(logits, self.sampling, uniform)
        return tokens.cpu(), log_probs.cpu()

    def keep(self, going: Tensor) -> None:
        """Forgets the answers that have ended."""
        if bool(going.all()):
            return
        index = going.nonzero().squeeze(-1)
        self.answers = self.answers[index]
        self.sampling = self.sampling.rows(index)
        if len(index):
            place = index.to(self.mask.device)
            self.mask, self.logits = self.mask[place], self.logits[place]
            self.seen = self.seen[place] if self.seen is not None else None
            self.cache.batch_select_indices(place)

    def advance(self, model: nn.Module, tokens: Tensor) -> None:
        """Runs the model over the newest token of each answer."""
        column = tokens.to(self.mask.device)[:, None]
        if self.seen is not None:
            self.seen = self.seen.scatter(1, column, True)
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(tokens), 1)], dim=1)
        result = model(
            input_ids=column,
            attention_mask=self.mask,
            position_ids=positions_of(self.mask)[:, -1:],
            past_key_values=self.cache,
            use_cache=True,
        )
        self.logits = result.logits[:, -1]
