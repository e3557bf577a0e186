"""The configuration of preference training."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from roll_pipelines.config import BaseConfig, WorkerConfig
from roll_pipelines.config.problems import Problem
from roll_pipelines.data.model_source import model_problems
from roll_pipelines.data.problems import TaskConfig
from roll_pipelines.data.row_problems import row_problems
from roll_pipelines.data.tiny_model import TinyModelConfig
from roll_pipelines.losses.preference import (
    PreferenceLoss,
    PreferenceOptions,
    preference_loss,
    preference_losses,
)


@dataclass
class DPOConfig(BaseConfig):
    """Learn which of two answers is preferred."""

    actor_train: WorkerConfig = field(default_factory=WorkerConfig)
    """The role that learns from `data_args.file_name`; `per_device_train_batch_size` counts pairs."""
    reference: WorkerConfig = field(default_factory=WorkerConfig)
    """The role that the policy is held to; it loads the model that training starts from. Without an engine, a
    policy with a LoRA adapter is its own reference: the model without the adapter."""
    loss: str = "sigmoid"
    """`sigmoid` (DPO), `ipo`, `simpo` (needs no reference), `kto`, or a registered loss of yours."""
    beta: float = 0.1
    """Strength with which the policy is held to the reference."""
    label_smoothing: float = 0.0
    """Share of pairs whose order is believed to be wrong: conservative DPO."""
    ipo_per_token: bool = False
    """IPO compares mean instead of summed log-probabilities."""
    simpo_gamma: float = 0.5
    """Margin that SimPO asks for."""
    desirable_weight: float = 1.0
    """KTO's weight of preferred answers."""
    undesirable_weight: float = 1.0
    """KTO's weight of the other answers."""
    cache_reference: bool = False
    """Score all pairs once before the first step, keep the numbers in the run directory, close the role."""
    chosen_key: str = "chosen"
    """Column of the preferred answer."""
    rejected_key: str = "rejected"
    """Column of the other answer."""
    validation_files: list[str] = field(default_factory=list)
    """Pairs that are scored and never learnt."""
    tiny_model: TinyModelConfig | None = None
    """Build a small model in code, instead of `pretrain`."""
    task: TaskConfig | None = None
    """Prefer the right answer to a generated problem over that to another one, instead of pairs in files."""
    num_problems: int = 4096
    """Generated problems to learn from."""

    def __post_init__(self) -> None:
        """Fills the workers' classes."""
        super().__post_init__()
        for role in (self.actor_train, self.reference):
            if role.worker_cls is None:
                role.worker_cls = "roll_pipelines.dpo.PreferenceWorker"

    def reference_engine(self) -> str | None:
        """Returns the engine of the reference role; None when it has none."""
        return self.reference.strategy_args.strategy_name

    def own_reference(self) -> bool:
        """Returns whether the policy, without its adapter, is the reference."""
        return self.reference_engine() is None and self.actor_train.model_args.lora_rank > 0

    def idle_roles(self) -> set[str]:
        """Returns the reference where the loss needs none, or the policy is its own."""
        known = self.loss in preference_losses()
        needed = not known or self.objective().needs_reference
        return set() if needed and not self.own_reference() else {"reference"}

    def objective(self) -> PreferenceLoss:
        """Returns the loss of the registry that `loss` names."""
        return preference_loss(self.loss)

    def options(self) -> PreferenceOptions:
        """Returns the numbers of the loss."""
        return PreferenceOptions(
            beta=self.beta,
            label_smoothing=self.label_smoothing,
            ipo_per_token=self.ipo_per_token,
            simpo_gamma=self.simpo_gamma,
            desirable_weight=self.desirable_weight,
            undesirable_weight=self.undesirable_weight,
        )

    def problems(self) -> Iterator[Problem]:
        """Yields what is wrong beyond the types of the fields."""
        yield from super().problems()
        yield from model_problems(self)
        if self.loss not in preference_losses():
            hint = f"one of {', '.join(preference_losses())}; register your own in a module that is imported"
            yield Problem(
                path="loss", rule="must name a registered preference loss", value=self.loss, hint=hint
            )
        elif self.objective().needs_reference and not self.reference_engine() and not self.own_reference():
            rule = f"must name an engine, because the loss {self.loss!r} needs a reference"
            hint = "hf_infer; or train an adapter with actor_train.model_args.lora_rank, and leave this out"
            yield Problem(path="reference.strategy_args.strategy_name", rule=rule, value=None, hint=hint)
        if not self.beta > 0:
            yield Problem(path="beta", rule="must be above 0", value=self.beta, hint="0.1")
        if not 0 <= self.label_smoothing < 0.5:
            hint = "at 0.5 the order of a pair means nothing"
            yield Problem(
                path="label_smoothing", rule="must be in [0, 0.5)", value=self.label_smoothing, hint=hint
            )
        if self.sequence_length is None:
            rule = "must be given: it bounds the prompt and one answer together"
            yield Problem(path="sequence_length", rule=rule, value=None, hint="sequence_length: 1024")
        budget = self.actor_train.max_tokens_per_microbatch_in_train
        if (
            self.actor_train.use_dynamic_batching_in_train
            and budget
            and budget < 2 * (self.sequence_length or 0)
        ):
            path = "actor_train.max_tokens_per_microbatch_in_train"
            rule = (
                "must be at least twice sequence_length: the two answers of a pair stand in one micro-batch"
            )
            hint = str(2 * (self.sequence_length or 0))
            yield Problem(path=path, rule=rule, value=budget, hint=hint)
        if self.actor_train.data_args.messages is not None:
            rule = "must be left out: prompt, chosen and rejected may hold messages themselves"
            value = self.actor_train.data_args.messages
            yield Problem(path="actor_train.data_args.messages", rule=rule, value=value, hint="delete it")
        yield from row_problems(
            self.actor_train.data_args,
            role="actor_train",
            task=self.task,
            validation_files=self.validation_files,
            what="pairs",
        )
