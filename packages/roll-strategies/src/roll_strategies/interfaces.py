"""The two interfaces that every engine implements: inference, and training on top of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from roll_dispatch import RankInfo
from roll_protocol import DataProto
from roll_strategies.capabilities import Capabilities
from roll_strategies.context import StrategyContext
from roll_strategies.errors import NotInitialized, StrategyConfigError, UnsupportedOperation
from roll_strategies.losses import LossMean, LossSum
from roll_strategies.ops.divergence import TopK, divergence, topk_probs_and_indices
from roll_strategies.ops.entropy import entropy
from roll_strategies.ops.language_loss import language_loss
from roll_strategies.ops.layout import Layout
from roll_strategies.ops.logprobs import log_probs
from roll_strategies.ops.topk import gather_by_teacher_indices, topk_logits
from roll_strategies.ops.vocabulary import VocabularyShard
from roll_strategies.weights.manifest import Bucket, CollectiveGroup, Manifest, UpdateReceipt
from roll_strategies.weights.transport import Transport

# B rows   S positions   P prompt positions   R response positions   V vocabulary   K kept entries

ModelProvider = Callable[..., nn.Module]
"""Called as `provider(tokenizer=, model_args=, training_args=, is_trainable=)`; returns the model."""
ForwardFunc = Callable[[DataProto, Tensor], tuple[Tensor, Mapping[str, object]]]
"""Called with a micro-batch and the model's output [b, S, V]; returns a value and the results by name, rows
first."""
LossFunc = Callable[[DataProto, Tensor], LossSum | LossMean | tuple[Tensor, Mapping[str, object]]]
"""Called with a micro-batch and the model's output [b, S, V]; pure."""


class InferenceStrategy(ABC):
    """One engine that scores and generates, seen from the worker that owns it.

    A subclass declares its `capabilities`, takes a `StrategyContext`, and knows no worker.
    """

    strategy_name: ClassVar[str] = ""
    capabilities: ClassVar[Capabilities] = Capabilities()

    def __init__(self, context: StrategyContext) -> None:
        """Keeps the context and refuses what the engine cannot do.

        Raises:
            StrategyConfigError: the configuration asks for something that `capabilities` does not have.
        """
        self.context = context
        self.model: nn.Module | None = None
        self.tokenizer: object | None = None
        self.rank_info = context.data_parallel()
        self.weights_version = 0
        missing = self.capabilities.missing(self.wanted())
        if missing:
            raise StrategyConfigError(
                f"strategy {context.strategy_name!r} of {context.cluster_name!r} cannot do "
                f"{', '.join(missing)}, which "
                f"its configuration asks for; take the setting out or choose an engine that declares it"
            )

    def wanted(self) -> Capabilities:
        """Returns what the configuration asks for; engines with options of their own extend it."""
        batching = self.context.batching
        return Capabilities(
            dynamic_batching=batching.train_tokens is not None or batching.infer_tokens is not None,
            packing=batching.packing,
            lora=self.context.model.lora_rank > 0,
        )

    @property
    def device(self) -> torch.device:
        """The device that this engine computes on."""
        return torch.device(self.context.device_type)

    def publish(self, rank_info: RankInfo) -> None:
        """Keeps the engine's real coordinates and tells the owner."""
        self.rank_info = rank_info
        self.context.publish(rank_info)

    # -- lifecycle

    @abstractmethod
    def initialize(self, model_provider: ModelProvider | None = None) -> None:
        """Builds groups, tokenizer and model, and publishes the RankInfo.

        Args:
            model_provider: how the model is made; None takes `default_model_provider`.
        """

    @abstractmethod
    def forward_step(self, batch: DataProto, forward_func: ForwardFunc) -> dict[str, object] | None:
        """Returns the results of `forward_func` over all rows, in input order, without gradients.

        Args:
            batch: rows with at least `input_ids` [B, S]; `meta_info["micro_batch_size"]` overrides the
                configured one.
            forward_func: called once a micro-batch; tensors and arrays in its mapping have rows first.

        Returns:
            Name -> tensor [B, ...] or object array [B]; None on ranks that produce no output.
        """

    def generate(self, batch: DataProto, generation_config: Mapping[str, object]) -> DataProto:
        """Returns one or more sampled answers a prompt; see `docs/architecture.md`, Generation."""
        raise self.unsupported("generate")

    def abort_requests(self, request_ids: Collection[str]) -> None:
        """Ends running generation requests; they resolve with what they have and the reason `abort`."""
        raise self.unsupported("abort_requests")

    def get_metrics(self, metric_names: Sequence[str] | None = None) -> dict[str, float]:
        """Returns the engine's own metrics."""
        return {}

    def unwrap_model(self) -> nn.Module:
        """Returns the model.

        Raises:
            NotInitialized: `initialize` has not run, or the engine holds no torch module.
        """
        if self.model is None:
            raise NotInitialized(
                f"strategy {self.context.strategy_name!r} has no model yet; call initialize() first"
            )
        return self.model

    # -- state

    def save_checkpoint(
        self,
        save_dir: str,
        global_step: int,
        ckpt_id: str = "",
        tag: str = "checkpoint",
        local_state_path: str | None = None,
        **kwargs: object,
    ) -> dict[str, float]:
        """Saves the state under `save_dir` and returns timings in seconds."""
        raise self.unsupported("save_checkpoint")

    def load_checkpoint(self, load_dir: str, tag: str = "checkpoint", **kwargs: object) -> None:
        """Loads what `save_checkpoint` saved; a missing or incomplete directory raises."""
        raise self.unsupported("load_checkpoint")

    def load_states(self, include: Sequence[str] | None = None, non_blocking: bool = False) -> None:
        """Brings offloaded states back; None means all."""
        raise self.unsupported("load_states")

    def offload_states(self, include: Sequence[str] | None = None, non_blocking: bool = False) -> None:
        """Gives the memory of states back; None means all."""
        raise self.unsupported("offload_states")

    # -- weights, as a target

    def setup_model_update(self, name: str, *, transport: Transport, **options: object) -> None:
        """Prepares this source for updates under `name`; runs on every rank of the source."""
        raise self.unsupported("setup_model_update")

    def setup_collective_group(self, group: CollectiveGroup) -> str:
        """Joins the group over which a broadcast transport sends bytes, and returns its name."""
        raise self.unsupported("setup_collective_group")

    def begin_update(self, manifest: Manifest) -> int:
        """Opens an update after comparing its names and shapes with the model's own; returns the version."""
        raise self.unsupported("begin_update")

    def update_parameter_in_bucket(self, bucket: Bucket) -> int:
        """Takes the parameters of one bucket and returns the number of bytes taken."""
        raise self.unsupported("update_parameter_in_bucket")

    def commit_update(self, version: int) -> UpdateReceipt:
        """Closes an update after checking that every parameter came, and returns the receipt."""
        raise self.unsupported("commit_update")

    def abort_update(self, version: int) -> int:
        """Gives an update up; the engine refuses to compute until a whole one has arrived."""
        raise self.unsupported("abort_update")

    def process_weights_after_loading(self) -> None:
        """Runs once after a whole update, for engines that repack their weights."""
        return

    # -- operations on logits, aware of how this engine lays rows out

    def layout(self) -> Layout | None:
        """Returns where the rows of the current micro-batch stand in what the model was fed; None: as they
        are."""
        return None

    def vocabulary(self) -> VocabularyShard | None:
        """Returns how the last dimension of the logits is split over ranks; None: it is whole."""
        return None

    def op_compute_log_probs(
        self, logits: Tensor, input_ids: Tensor, attention_mask: Tensor, *, temperature: float = 1.0
    ) -> Tensor:
        """Returns log-probs [B, S-1] of `input_ids[:, 1:]`; 0 where `attention_mask[:, 1:]` is 0."""
        return log_probs(
            logits,
            input_ids,
            attention_mask,
            temperature=temperature,
            layout=self.layout(),
            vocabulary=self.vocabulary(),
        )

    def op_compute_entropy(
        self, logits: Tensor, attention_mask: Tensor, *, temperature: float = 1.0
    ) -> Tensor:
        """Returns the entropy [B, S-1] of the distribution over each next token; 0 where it is masked."""
        return entropy(
            logits,
            attention_mask,
            temperature=temperature,
            layout=self.layout(),
            vocabulary=self.vocabulary(),
        )

    def op_compute_language_loss(self, logits: Tensor, labels: Tensor) -> LossSum:
        """Returns the summed cross-entropy of shifted labels, to be divided by their global count."""
        return language_loss(logits, labels, layout=self.layout(), vocabulary=self.vocabulary())

    def op_compute_values(self, output: Tensor) -> Tensor:
        """Returns the numbers [B, S] of a value head (`token_classification` with one label), by position."""
        values, layout = output[..., 0], self.layout()
        return values if layout is None else layout.gather(values)

    def op_compute_topk_logits(self, logits: Tensor, topk: int) -> TopK:
        """Returns the `topk` largest logits and their ids [B, S, K]; 0 keeps the whole vocabulary."""
        return topk_logits(logits, topk, layout=self.layout(), vocabulary=self.vocabulary())

    def op_compute_gather_by_teacher_indices(
        self, student_logits: Tensor, teacher_indices: Tensor | None
    ) -> Tensor:
        """Returns the student's logits at the teacher's ids [B, S, K]; None keeps the whole vocabulary."""
        return gather_by_teacher_indices(
            student_logits, teacher_indices, layout=self.layout(), vocabulary=self.vocabulary()
        )

    def op_compute_topk_probs_and_indices(
        self, logits: Tensor, topk: int, *, target_vocab_size: int | None = None, temperature: float = 1.0
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns probabilities and log-probabilities over the `topk` entries, renormalised, and their
        ids."""
        return topk_probs_and_indices(
            logits,
            topk,
            target_vocab_size=target_vocab_size,
            temperature=temperature,
            layout=self.layout(),
            vocabulary=self.vocabulary(),
        )

    def op_compute_various_divergence(
        self,
        student_logits: Tensor,
        teacher_log_probs: Tensor,
        *,
        teacher_indices: Tensor | None = None,
        kind: str = "forward_kl",
        temperature: float = 1.0,
    ) -> Tensor:
        """Returns the divergence between teacher and student at each position [B, S]; callers mask and
        sum."""
        return divergence(
            student_logits,
            teacher_log_probs,
            teacher_indices=teacher_indices,
            kind=kind,
            temperature=temperature,
            layout=self.layout(),
            vocabulary=self.vocabulary(),
        )

    def unsupported(self, method: str) -> UnsupportedOperation:
        """Returns the error for a method that this engine does not have."""
        return UnsupportedOperation(
            f"strategy {self.context.strategy_name!r} of {self.context.cluster_name!r} has no {method}(); "
            f"choose an engine whose capabilities have it"
        )


class TrainStrategy(InferenceStrategy):
    """One engine that trains."""

    capabilities: ClassVar[Capabilities] = Capabilities(trains=True)

    @abstractmethod
    def train_step(self, batch: DataProto, loss_func: LossFunc) -> dict[str, object]:
        """Takes one optimizer step on all rows that the data-parallel ranks hold together, and returns
        metrics.

        Args:
            batch: this data-parallel rank's rows; ranks may have different numbers of rows, or none.
            loss_func: returns `LossSum`, `LossMean` or the plain `(loss, metrics)`; see `docs/strategies.md`.

        Returns:
            Metrics; `<role>/loss`, `<role>/grad_norm` and `<role>/lr` are those of the whole global batch.
        """

    def model_update(self, name: str, version: int) -> dict[str, float]:
        """Sends the model's weights to the targets of `name` as that version, and returns bytes and
        seconds."""
        raise self.unsupported("model_update")
