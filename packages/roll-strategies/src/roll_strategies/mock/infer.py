"""`mock_infer`: deterministic scores and answers from a tiny table."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from roll_protocol import DataProto
from roll_strategies.capabilities import Capabilities
from roll_strategies.context import StrategyContext
from roll_strategies.counts import columns_of
from roll_strategies.errors import StrategyConfigError
from roll_strategies.holding import ModelHolder
from roll_strategies.interfaces import ForwardFunc, ModelProvider
from roll_strategies.microbatches import plan_micro_batches
from roll_strategies.mock.model import BigramModel
from roll_strategies.options import read_options
from roll_strategies.results import joined_results, take_rows

# B prompts   n answers a prompt   P prompt positions   R response positions   V vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class MockOptions:
    """The options of the mock engines."""

    vocab_size: int = 64
    """Size of the table."""
    eos_token_id: int | None = None
    """A drawn token of this id ends an answer; None lets every answer reach its longest length."""


class MockInferStrategy(ModelHolder):
    """Needs no model directory and no library beside torch; computes nothing worth learning."""

    strategy_name: ClassVar[str] = "mock_infer"
    capabilities: ClassVar[Capabilities] = Capabilities(generates=True, dynamic_batching=True, sleep=True)

    def __init__(self, context: StrategyContext) -> None:
        super().__init__(context)
        self.options = read_options(MockOptions, context.strategy_config, engine=context.strategy_name)

    def initialize(self, model_provider: ModelProvider | None = None) -> None:
        """Builds the table from the seed; a model provider is not asked."""
        self.hold(BigramModel(vocab_size=self.options.vocab_size, seed=self.context.seed), digest="full")
        self.publish(self.context.data_parallel())

    def forward_step(self, batch: DataProto, forward_func: ForwardFunc) -> dict[str, object] | None:
        """Returns the results of `forward_func` over the table's logits."""
        model = self.unwrap_model()
        self.require_states()
        rows = int(batch.meta_info.get("micro_batch_size") or self.context.batching.infer_rows)
        plan = plan_micro_batches([1] * len(batch), rows=rows)
        parts = []
        with torch.inference_mode():
            for group in plan.groups:
                micro = take_rows(batch, group)
                parts.append(forward_func(micro, model(columns_of(micro)["input_ids"]))[1])
        return joined_results(parts, plan)

    def generate(self, batch: DataProto, generation_config: Mapping[str, object]) -> DataProto:
        """Returns answers that follow the most likely token of the table, each sample starting one id
        further."""
        self.unwrap_model()
        self.require_states()
        width, count = (
            generation_config.get("max_new_tokens"),
            generation_config.get("num_return_sequences") or 1,
        )
        if not isinstance(width, int) or width < 1:
            raise StrategyConfigError(
                f"generation_config.max_new_tokens must be an integer of at least 1, got {width!r}"
            )
        assert isinstance(count, int)
        last = columns_of(batch)["input_ids"][:, -1]
        start = (
            last.repeat_interleave(count) + torch.arange(count).repeat(len(batch))
        ) % self.options.vocab_size
        responses, log_probs = self._walk(start, width)
        lengths = self._lengths(responses)
        past = torch.arange(width)[None, :] >= lengths[:, None]
        reasons = np.empty(len(lengths), dtype=object)
        ended = (
            (responses == self.options.eos_token_id).any(-1)
            if self.options.eos_token_id is not None
            else None
        )
        reasons[:] = [
            "stop" if ended is not None and bool(ended[row]) else "length" for row in range(len(lengths))
        ]
        return DataProto.from_single_dict(
            {
                "responses": responses.masked_fill(past, 0),
                "response_lengths": lengths,
                "infer_logprobs": log_probs.masked_fill(past, 0.0),
                "finish_reasons": reasons,
            }
        )

    def _walk(self, start: Tensor, width: int) -> tuple[Tensor, Tensor]:
        model = self.unwrap_model()
        tokens, log_probs = [], []
        current = start
        with torch.inference_mode():
            for _ in range(width):
                values, current = model(current[:, None])[:, 0].log_softmax(-1).max(-1)
                tokens.append(current)
                log_probs.append(values)
        return torch.stack(tokens, 1), torch.stack(log_probs, 1)

    def _lengths(self, responses: Tensor) -> Tensor:
        rows, width = responses.shape
        if self.options.eos_token_id is None:
            return torch.full((rows,), width, dtype=torch.int64)
        stops = responses == self.options.eos_token_id
        first = stops.long().argmax(-1) + 1
        return torch.where(stops.any(-1), first, width)

    def abort_requests(self, request_ids: Collection[str]) -> None:
        """Does nothing: an answer is there before anybody could end it."""
