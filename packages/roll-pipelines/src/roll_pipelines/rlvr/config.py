"""The configuration of reinforcement learning with verifiable rewards."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from roll_pipelines.advantages import Estimator
from roll_pipelines.config import BaseConfig, WorkerConfig
from roll_pipelines.config.problems import Problem
from roll_pipelines.data.model_source import model_problems
from roll_pipelines.data.problems import TaskConfig
from roll_pipelines.data.tiny_model import TinyModelConfig
from roll_pipelines.losses.kl import KlKind
from roll_pipelines.losses.policy import Aggregation
from roll_pipelines.sft.config import rows_per_step

WORKERS = "roll_pipelines.workers"


@dataclass
class RewardConfig(WorkerConfig):
    """The role that judges answers."""

    reward_fn: str = "reasoning_gym"
    """Name of the reward: `reasoning_gym`, `exact_match`, `number`, or `module:factory` of your own."""
    reward_args: dict[str, Any] = field(default_factory=dict)  # Any: each reward's own settings
    """Its settings; for `reasoning_gym` the task is filled in."""


@dataclass
class WarmUpConfig(WorkerConfig):
    """A role that learns right answers before reinforcement learning, so that some answers are right."""

    steps: int = 0
    """Optimizer steps; 0 leaves the warm-up out."""


@dataclass
class ValidationConfig:
    """How accuracy on the held-out problems is measured."""

    num_samples: int = 4
    """Answers drawn for each problem; accuracy is the mean over all of them."""
    temperature: float = 1.0
    """Temperature at which they are drawn: at 1 accuracy is that of the policy itself."""
    num_shown: int = 8
    """Problems whose answers before and after stand in the report."""


@dataclass
class RLVRConfig(BaseConfig):
    """Learn from rewards that a rule or a verifier gives."""

    actor_train: WorkerConfig = field(default_factory=WorkerConfig)
    """The policy that learns."""
    actor_infer: WorkerConfig = field(default_factory=WorkerConfig)
    """The policy that answers; it is sent new weights after every step."""
    reference: WorkerConfig = field(default_factory=WorkerConfig)
    """The policy as it was at the start; it exists when there is a KL loss. Without an engine, a policy with
    a LoRA adapter is its own reference: the model without the adapter."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """The judge."""
    warm_up: WarmUpConfig = field(default_factory=WarmUpConfig)
    """Supervised steps before the first step of reinforcement learning."""
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    """How accuracy is measured, every `eval_steps` steps."""
    task: TaskConfig = field(default_factory=TaskConfig)
    """The problems."""
    tiny_model: TinyModelConfig | None = None
    """Build a small model in code, instead of `pretrain`."""
    rollout_batch_size: int = 128
    """Problems of one step; each is answered `actor_infer.generating_args.num_return_sequences` times."""
    adv_estimator: Estimator = "grpo"
    """How rewards become advantages."""
    reward_clip: float | None = None
    """Largest size of a reward."""
    advantage_clip: float | None = None
    """Largest size of an advantage."""
    ppo_epochs: int = 1
    """Passes over the rows of a step."""
    pg_clip_low: float = 0.2
    """How far below 1 the importance ratio counts."""
    pg_clip_high: float = 0.2
    """How far above 1 the importance ratio counts."""
    dual_clip: float | None = None
    """With a negative advantage A, the loss is at most `-dual_clip * A`; above 1."""
    loss_agg_mode: Aggregation = "token-mean"
    """How token losses are weighed."""
    kl_loss_coef: float = 0.0
    """Weight of the divergence from the reference in the loss; 0 runs without a reference."""
    kl_loss_kind: KlKind = "k3"
    """Estimator of that divergence."""
    entropy_loss_coef: float = 0.0
    """Weight of the entropy, which the loss rewards."""

    def __post_init__(self) -> None:
        """Fills worker classes and the task of the reward."""
        super().__post_init__()
        classes = {"reward": "RewardWorker", "actor_infer": "InferWorker", "warm_up": "SFTWorker"}
        for path, role in self.roles().items():
            if role.worker_cls is None:
                role.worker_cls = f"{WORKERS}.{classes.get(path, 'ActorWorker')}"
        if self.reward.reward_fn == "reasoning_gym" and "task" not in self.reward.reward_args:
            named = {"task": self.task.name, "task_args": dict(self.task.args)}
            self.reward.reward_args = {**named, **self.reward.reward_args}

    @property
    def group_size(self) -> int:
        """Answers to one problem."""
        return self.actor_infer.generating_args.num_return_sequences

    def mini_batches(self) -> int:
        """Returns the optimizer steps of one pass over the rows of a step."""
        rows = self.rollout_batch_size * self.group_size
        return -(-rows // rows_per_step(self.actor_train))

    def problems(self) -> Iterator[Problem]:
        """Yields what is wrong beyond the types of the fields."""
        yield from super().problems()
        yield from model_problems(self)
        for name in ("prompt_length", "response_length"):
            if getattr(self, name) is None:
                yield Problem(path=name, rule="must be given: it bounds what is generated", value=None)
        at_least_one = {
            "rollout_batch_size": self.rollout_batch_size,
            "ppo_epochs": self.ppo_epochs,
            "validation.num_samples": self.validation.num_samples,
            "task.num_held_out": self.task.num_held_out,
        }
        for name, value in at_least_one.items():
            if value < 1:
                yield Problem(path=name, rule="must be at least 1", value=value)
        if self.warm_up.steps < 0:
            yield Problem(
                path="warm_up.steps", rule="must not be negative", value=self.warm_up.steps, hint="0"
            )
        if not 0 <= self.pg_clip_low < 1:
            yield Problem(path="pg_clip_low", rule="must be at least 0 and below 1", value=self.pg_clip_low)
        if self.pg_clip_high < 0:
            yield Problem(path="pg_clip_high", rule="must not be negative", value=self.pg_clip_high)
        if self.dual_clip is not None and self.dual_clip <= 1:
            yield Problem(
                path="dual_clip", rule="must be above 1", value=self.dual_clip, hint="3.0, or leave it out"
            )
        yield from self._roles_problems()
        yield from self._sampling_problems()

    def own_reference(self) -> bool:
        """Returns whether a policy with an adapter is its own reference: the model without the adapter."""
        return (
            self.reference.strategy_args.strategy_name is None and self.actor_train.model_args.lora_rank > 0
        )

    def idle_roles(self) -> set[str]:
        """Returns the roles that are not needed: a warm-up without steps, a reference without a KL loss."""
        idle = {"warm_up"} if self.warm_up.steps == 0 else set()
        return idle | ({"reference"} if not self.kl_loss_coef or self.own_reference() else set())

    def _roles_problems(self) -> Iterator[Problem]:
        for path, role in self.started_roles().items():
            if path != "reward" and role.strategy_args.strategy_name is None:
                where = f"{path}.strategy_args.strategy_name"
                yield Problem(path=where, rule="must name an engine for this role", value=None)
        if self.actor_infer.model_update_frequency != 1:
            rule = "must be 1: every step learns from answers of the newest weights"
            value = self.actor_infer.model_update_frequency
            yield Problem(
                path="actor_infer.model_update_frequency", rule=rule, value=value, hint="leave it out"
            )

    def _sampling_problems(self) -> Iterator[Problem]:
        sampling = self.actor_infer.generating_args
        where = "actor_infer.generating_args"
        if sampling.temperature <= 0 or not sampling.do_sample:
            rule = "must be sampled from: without chance all answers to a problem are the same"
            yield Problem(path=f"{where}.temperature", rule=rule, value=sampling.temperature, hint="1.0")
        if sampling.max_new_tokens is not None and sampling.max_new_tokens != self.response_length:
            rule = f"must be response_length = {self.response_length}"
            value = sampling.max_new_tokens
            yield Problem(
                path=f"{where}.max_new_tokens", rule=rule, value=value, hint="leave it out: it is derived"
            )
