"""`hf_infer`: a Hugging Face model in one process, for scoring and for sampling."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from roll_protocol import DataProto
from roll_strategies.answers import request_ids_of
from roll_strategies.capabilities import Capabilities
from roll_strategies.context import StrategyContext
from roll_strategies.hf import lora
from roll_strategies.hf.forward import forward_padded
from roll_strategies.hf.generation import Generation
from roll_strategies.hf.models import torch_dtype
from roll_strategies.holding import ModelHolder
from roll_strategies.interfaces import ForwardFunc, ModelProvider
from roll_strategies.microbatches import plan_micro_batches
from roll_strategies.offload import own_memory
from roll_strategies.options import read_options
from roll_strategies.providers import default_model_provider, default_tokenizer
from roll_strategies.results import joined_results, take_rows
from roll_strategies.rows import row_lengths
from roll_strategies.running import RunningRequests
from roll_strategies.weights.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class HfInferOptions:
    """The options of `hf_infer`."""

    digest: Literal["sampled", "full"] = "sampled"
    """How much of each arriving parameter is checked."""


class HfInferStrategy(ModelHolder):
    """A whole model on every rank; ranks are data parallel and do not talk to each other."""

    strategy_name: ClassVar[str] = "hf_infer"
    capabilities: ClassVar[Capabilities] = Capabilities(
        generates=True, dynamic_batching=True, lora=True, sleep=True, abort=True, streaming=True
    )

    def __init__(self, context: StrategyContext) -> None:
        super().__init__(context)
        self.options = read_options(HfInferOptions, context.strategy_config, engine="hf_infer")
        torch_dtype(context.model.dtype)
        self.requests = RunningRequests()

    def initialize(self, model_provider: ModelProvider | None = None) -> None:
        """Loads tokenizer and model, and publishes pure data-parallel coordinates."""
        if self.context.model.model_name_or_path:
            self.tokenizer = default_tokenizer(self.context.model_args)
        provider = model_provider or default_model_provider
        model = provider(
            tokenizer=self.tokenizer,
            model_args=self.context.model_args,
            training_args=self.context.training_args,
            is_trainable=False,
        )
        adapted = self.context.model.lora_rank > 0
        if adapted:
            lora.attach(model, self.context.model)
            lora.reset(model, seed=self.context.seed)
        model = model.eval().to(self.device)
        own_memory(model)
        named = lora.adapter_state(model) if adapted else None
        self.hold(model, digest=self.options.digest, named=named)
        self.publish(self.context.data_parallel())

    def forward_step(self, batch: DataProto, forward_func: ForwardFunc) -> dict[str, object] | None:
        """Returns the results of `forward_func` over all rows, in input order."""
        model = self.unwrap_model()
        self.require_states()
        batching = self.context.batching
        plan = plan_micro_batches(
            row_lengths(batch),
            rows=int(batch.meta_info.get("micro_batch_size") or batching.infer_rows),
            tokens=batching.infer_tokens,
        )
        parts = []
        with torch.inference_mode(), lora.as_asked(model, batch.meta_info):
            for group in plan.groups:
                micro = take_rows(batch, group).to(self.context.device_type)
                _, results = forward_func(micro, forward_padded(model, micro))
                parts.append(results)
        return joined_results(parts, plan)

    def generate(self, batch: DataProto, generation_config: Mapping[str, object]) -> DataProto:
        """Returns the sampled answers; see `docs/architecture.md`, Generation."""
        running: list[Generation] = []
        for _ in self.stream(batch, generation_config, running):
            pass
        return running[0].result()

    def stream(
        self, batch: DataProto, generation_config: Mapping[str, object], into: list[Generation] | None = None
    ) -> Iterator[tuple[int, int]]:
        """Yields `(answer, token)` as they are sampled; the same tokens that `generate` returns.

        Args:
            batch: prompts; an object column `request_ids` names them for `abort_requests`.
            generation_config: as for `generate`.
            into: if given, the running generation is appended to it.
        """
        model = self.unwrap_model()
        self.require_states()
        generation = Generation.of(
            batch,
            generation_config,
            model=model,
            tokenizer=self.tokenizer,
            seed=self.context.seed + 7919 * self.rank_info.dp_rank,
            rows=self.context.batching.infer_rows,
            device=self.device,
            aborted=self.requests.is_aborted,
        )
        if into is not None:
            into.append(generation)
        with torch.inference_mode(), self.requests.working_on(request_ids_of(batch) or ()):
            yield from generation.tokens()

    def abort_requests(self, request_ids: Collection[str]) -> None:
        """Ends the answers to those prompts before their next token; names that no running call has are
        ignored."""
        self.requests.abort(request_ids)

    def begin_update(self, manifest: Manifest) -> int:
        """Opens an update; parameters that were offloaded come back for it.

        Raises:
            WeightSyncError: with `lora_rank` an update must bring the adapter alone, and without it weights.
        """
        lora.require_same_kind(manifest, adapted=self.context.model.lora_rank > 0)
        return super().begin_update(manifest)
