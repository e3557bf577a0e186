"""`vllm`: sampling by a vLLM engine, whose weights can be replaced while it stands."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar

from torch import Tensor, nn
from vllm.v1.engine.llm_engine import LLMEngine

from roll_protocol import DataProto
from roll_strategies.answers import pad_id_of, prompts_of, request_ids_of, stop_ids_of
from roll_strategies.capabilities import Capabilities
from roll_strategies.context import StrategyContext
from roll_strategies.counts import columns_of
from roll_strategies.errors import NotInitialized, StrategyConfigError
from roll_strategies.hf.models import load_tokenizer, skeleton
from roll_strategies.interfaces import ForwardFunc, InferenceStrategy, ModelProvider
from roll_strategies.offload import StateKind, state_kinds
from roll_strategies.request import read_request
from roll_strategies.running import RunningRequests
from roll_strategies.vllm.engine import start_engine
from roll_strategies.vllm.options import VllmOptions, engine_args
from roll_strategies.vllm.requests import EngineRequests
from roll_strategies.vllm.target import EngineTarget
from roll_strategies.weights.manifest import Bucket, CollectiveGroup, Manifest, UpdateReceipt

_TAGS = {StateKind.MODEL_PARAMS: "weights", StateKind.KV_CACHE: "kv_cache"}


class VllmInferStrategy(InferenceStrategy):
    """One engine per worker, over all devices of the worker; workers are data parallel and do not talk to
    each other. It samples and does not score: `forward_step` belongs to another engine."""

    strategy_name: ClassVar[str] = "vllm"
    capabilities: ClassVar[Capabilities] = Capabilities(
        generates=True, sleep=True, abort=True, streaming=True
    )

    def __init__(self, context: StrategyContext) -> None:
        super().__init__(context)
        self.options = VllmOptions.read(context.strategy_config)
        if context.model.model_type != "causal_lm":
            raise StrategyConfigError(
                f"model_args.model_type must be causal_lm for strategy 'vllm', which samples; got "
                f"{context.model.model_type!r}"
            )
        self._engine: LLMEngine | None = None
        self._target: EngineTarget | None = None
        self._skeleton: nn.Module = nn.Module()
        self._updating = False
        self._asleep: set[StateKind] = set()
        self._calls = itertools.count()
        self.requests = RunningRequests()

    def initialize(self, model_provider: ModelProvider | None = None) -> None:
        """Starts the engine on the model directory; vLLM builds its own model, so no provider is asked."""
        settings = self.context.model
        args = engine_args(self.context, self.options)
        self.tokenizer = load_tokenizer(settings)
        self._skeleton = skeleton(settings)
        self._engine = start_engine(args)
        self._target = EngineTarget(
            self._skeleton, rank=self.context.rank, digest=self.options.digest, load=self._load
        )
        self.publish(self.context.data_parallel())

    def close(self) -> None:
        """Ends the engine and its processes."""
        if self._engine is not None:
            self._engine.engine_core.shutdown()
        self._engine, self._target = None, None

    @property
    def engine(self) -> LLMEngine:
        """vLLM's own engine."""
        if self._engine is None:
            raise NotInitialized("strategy 'vllm' has no engine yet; call initialize() first")
        return self._engine

    def unwrap_model(self) -> nn.Module:
        """Raises: vLLM keeps its model in forms of its own, on one process for each device."""
        raise self.unsupported("unwrap_model")

    def forward_step(self, batch: DataProto, forward_func: ForwardFunc) -> dict[str, object] | None:
        """Raises: vLLM samples; score with `hf_infer` or `fsdp2_infer`."""
        raise self.unsupported("forward_step")

    def generate(self, batch: DataProto, generation_config: Mapping[str, object]) -> DataProto:
        """Returns the sampled answers; see `docs/architecture.md`, Generation."""
        names = request_ids_of(batch) or []
        with self.requests.working_on(names):
            requests = self._requests(batch, generation_config)
            for _ in requests.tokens(lambda: self._aborted(names)):
                pass
        return requests.answers.batch()

    def stream(self, batch: DataProto, generation_config: Mapping[str, object]) -> Iterator[tuple[int, int]]:
        """Yields `(answer, token)` as they are sampled; the same tokens that `generate` returns."""
        names = request_ids_of(batch) or []
        with self.requests.working_on(names):
            yield from self._requests(batch, generation_config).tokens(lambda: self._aborted(names))

    def _requests(self, batch: DataProto, generation_config: Mapping[str, object]) -> EngineRequests:
        engine = self.engine
        self._whole().require_whole()
        self._wake(tuple(_TAGS))
        ids, mask = prompts_of(batch)
        request = read_request(
            generation_config,
            columns_of(batch),
            rows=len(batch),
            default_seed=self.context.seed + 7919 * self.rank_info.dp_rank,
            default_stop=stop_ids_of(self._skeleton),
            default_pad=pad_id_of(self._skeleton, self.tokenizer),
        )
        if request.stop_strings and self.tokenizer is None:
            raise StrategyConfigError(
                "generation_config.stop_strings needs a tokenizer, and there is none beside the model; save "
                "one there"
            )
        return EngineRequests(engine, ids, mask, request, name=str(next(self._calls)))

    def abort_requests(self, request_ids: Collection[str]) -> None:
        """Ends the answers to those prompts before their next token; names that no running call has are
        ignored."""
        self.requests.abort(request_ids)

    def _aborted(self, names: Sequence[str]) -> list[int]:
        return [row for row, name in enumerate(names) if self.requests.is_aborted(name)]

    # -- state

    def load_states(self, include: Sequence[str] | None = None, non_blocking: bool = False) -> None:
        """Brings weights and KV cache back."""
        self._wake(state_kinds(include))

    def offload_states(self, include: Sequence[str] | None = None, non_blocking: bool = False) -> None:
        """Gives the memory of weights and KV cache back; vLLM gives both or none.

        Raises:
            UnsupportedOperation: on a CPU, where vLLM has no sleep.
        """
        wanted = set(state_kinds(include)) & set(_TAGS)
        if not wanted or wanted <= self._asleep:
            return
        if self.context.device_type != "cuda":
            raise self.unsupported(f"offload_states on {self.context.device_type!r}, where vLLM cannot sleep")
        self.engine.sleep(level=1)
        self._asleep = set(_TAGS)
        self._wake([kind for kind in _TAGS if kind not in wanted])

    def _wake(self, kinds: Sequence[StateKind]) -> None:
        tags = [tag for kind, tag in _TAGS.items() if kind in kinds and kind in self._asleep]
        if tags:
            self.engine.wake_up(tags=tags)
            self._asleep -= {kind for kind, tag in _TAGS.items() if tag in tags}

    # -- weights, as a target

    def setup_collective_group(self, group: CollectiveGroup) -> str:
        """Joins the group of a broadcast transport."""
        return self._whole().setup_collective_group(group)

    def begin_update(self, manifest: Manifest) -> int:
        """Opens an update; weights that were offloaded come back for it."""
        self._wake([StateKind.MODEL_PARAMS])
        return self._whole().begin_update(manifest)

    def update_parameter_in_bucket(self, bucket: Bucket) -> int:
        """Takes one bucket."""
        return self._whole().update_parameter_in_bucket(bucket)

    def commit_update(self, version: int) -> UpdateReceipt:
        """Closes an update; what the engine remembers of prompts under the old weights is dropped."""
        receipt = self._whole().commit_update(version)
        self._end_loading()
        self.weights_version = version
        return receipt

    def abort_update(self, version: int) -> int:
        """Gives an update up."""
        answer = self._whole().abort_update(version)
        self._end_loading()
        return answer

    def _load(self, tensors: Sequence[tuple[str, Tensor]]) -> None:
        if not self._updating:
            self._ask("roll_begin_update")
            self._updating = True
        self._ask("roll_load", list(tensors))

    def _end_loading(self) -> None:
        if self._updating:
            self._ask("roll_end_update")
            self._updating = False
            self.engine.reset_prefix_cache()

    def _ask(self, method: str, *args: object) -> None:
        self.engine.collective_rpc(method, timeout=self.context.update_timeout_s, args=args)

    def _whole(self) -> EngineTarget:
        if self._target is None:
            raise NotInitialized("strategy 'vllm' has no engine yet; call initialize() first")
        return self._target
