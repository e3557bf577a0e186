"""One `generate` call as requests to a vLLM engine, and its outputs as answers."""

import hashlib
from collections.abc import Callable, Collection, Iterator

from torch import Tensor
from vllm import SamplingParams
from vllm.exceptions import VLLMClientError
from vllm.outputs import CompletionOutput
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.llm_engine import LLMEngine

from roll_strategies.answers import Answers
from roll_strategies.errors import BatchError
from roll_strategies.request import Request

# B prompts   n answers a prompt   P prompt positions


def seed_of(seed: int, sample: int) -> int:
    """Returns the seed of one answer, from that of its prompt and its place among the prompt's answers."""
    digest = hashlib.blake2b(f"{seed}/{sample}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def sampling_params(request: Request, answer: int) -> SamplingParams:
    """Returns what one answer asks of vLLM; a token that ends it belongs to it."""
    sampling = request.sampling
    return SamplingParams(
        temperature=float(sampling.temperature[answer]),
        top_p=float(sampling.top_p[answer]),
        top_k=int(sampling.top_k[answer]),
        max_tokens=int(sampling.max_new_tokens[answer]),
        seed=seed_of(int(sampling.seeds[answer]), int(sampling.samples[answer])),
        repetition_penalty=request.repetition_penalty,
        stop_token_ids=sorted(request.stop_ids),
        stop=list(request.stop_strings) or None,
        include_stop_str_in_output=True,
        ignore_eos=True,  # the ids that end an answer are those of the request, and no others
        detokenize=bool(request.stop_strings),
        logprobs=0,
        output_kind=RequestOutputKind.DELTA,
    )


def check_lengths(mask: Tensor, request: Request, *, longest: int) -> None:
    """Raises BatchError for a prompt that leaves its answer less room than it may have: vLLM would cut it."""
    needed = mask.sum(-1).repeat_interleave(request.num_return_sequences) + request.sampling.max_new_tokens
    if len(needed) and int(needed.max()) > longest:
        row = int(needed.argmax()) // request.num_return_sequences
        prompt, total = int(mask[row].sum()), int(needed.max())
        raise BatchError(
            f"row {row}: a prompt of {prompt} tokens with answers of up to {total - prompt} needs {total} "
            f"positions, and the engine has max_model_len = {longest}; raise strategy_config.max_model_len, "
            "or shorten one of the two"
        )


class EngineRequests:
    """The requests of one `generate` call, on their way through the engine.

    Args:
        engine: runs them.
        ids: prompts [B, P], padded on the left.
        mask: 1 for tokens, 0 for padding [B, P].
        request: what is asked for.
        name: distinguishes this call's requests from those of others.
    """

    def __init__(self, engine: LLMEngine, ids: Tensor, mask: Tensor, request: Request, *, name: str) -> None:
        self._engine, self._request = engine, request
        self.answers = Answers(request)
        self._running: dict[str, int] = {}
        count = request.num_return_sequences
        check_lengths(mask, request, longest=engine.model_config.max_model_len)
        try:
            for row, (tokens, held) in enumerate(zip(ids, mask.bool(), strict=True)):
                prompt = tokens[held].tolist()
                for answer in range(row * count, (row + 1) * count):
                    params = sampling_params(request, answer)
                    engine.add_request(f"{name}/{answer}", {"prompt_token_ids": prompt}, params)
                    self._running[f"{name}/{answer}"] = answer
        except (VLLMClientError, ValueError) as refused:
            self.close()  # the others must not run on
            raise BatchError(f"row {row}: vLLM refuses the request: {refused}") from None

    def tokens(self, aborted: Callable[[], Collection[int]]) -> Iterator[tuple[int, int]]:
        """Yields `(answer, token)` until every answer has ended.

        Args:
            aborted: asked before each step for the numbers of prompts whose answers shall end.
        """
        count = self._request.num_return_sequences
        try:
            while self._running:
                prompts = aborted()
                self._abort([name for name, a in self._running.items() if a // count in prompts])
                if not self._running:
                    return
                for output in self._engine.step():
                    answer = self._running.get(output.request_id)
                    if answer is not None:
                        yield from self._take(output.request_id, answer, output.outputs[0])
        finally:
            self.close()

    def _take(self, name: str, answer: int, new: CompletionOutput) -> Iterator[tuple[int, int]]:
        tokens = list(new.token_ids)
        steps = new.logprobs or []
        log_probs = [step[token].logprob for token, step in zip(tokens, steps, strict=True)]
        self.answers.add(answer, tokens, log_probs)
        if new.finish_reason is not None:
            del self._running[name]
            self.answers.end(answer, new.finish_reason)
        for token in tokens:
            yield answer, token

    def _abort(self, names: list[str]) -> None:
        if names:
            self._engine.abort_request(names)
        for name in names:
            self.answers.end(self._running.pop(name), "abort")

    def close(self) -> None:
        """Ends what still runs."""
        self._abort(list(self._running))
