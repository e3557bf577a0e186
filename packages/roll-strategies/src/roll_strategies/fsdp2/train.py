"""`fsdp2_train`: one sharded model, one optimizer step per call, exact whatever the batch's division."""

from typing import ClassVar

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from roll_protocol import DataProto, Metric
from roll_strategies.capabilities import Capabilities
from roll_strategies.context import StrategyContext
from roll_strategies.counts import global_counts
from roll_strategies.errors import NotInitialized
from roll_strategies.fsdp2.checkpoint import load_training, save_training
from roll_strategies.fsdp2.engine import Fsdp2Strategy
from roll_strategies.fsdp2.groups import sum_over
from roll_strategies.fsdp2.optimizer import OptimizerStep, make_optimizer, take_step
from roll_strategies.fsdp2.sharding import reshard
from roll_strategies.fsdp2.update import SourceRanks
from roll_strategies.interfaces import LossFunc, ModelProvider, TrainStrategy
from roll_strategies.microbatches import MicroBatches, plan_micro_batches
from roll_strategies.offload import StateKind
from roll_strategies.rows import row_lengths
from roll_strategies.step import run_micro_batches
from roll_strategies.weights.transport import Transport


class Fsdp2TrainStrategy(Fsdp2Strategy, TrainStrategy):
    """Trains a model that is sharded over all ranks of the role."""

    strategy_name: ClassVar[str] = "fsdp2_train"
    trainable: ClassVar[bool] = True
    capabilities: ClassVar[Capabilities] = Capabilities(
        trains=True, dynamic_batching=True, packing=True, context_parallel=True, lora=True, sleep=True
    )

    def __init__(self, context: StrategyContext) -> None:
        super().__init__(context)
        self.settings = context.training
        self.steps = 0
        self._optimizer: torch.optim.Optimizer | None = None
        self._source: SourceRanks | None = None

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer; it exists once `initialize` has run."""
        if self._optimizer is None:
            name = self.context.strategy_name
            raise NotInitialized(f"strategy {name!r} has no optimizer yet; call initialize() first")
        return self._optimizer

    def initialize(self, model_provider: ModelProvider | None = None) -> None:
        """Joins the group, builds and shards the model, makes the optimizer, and publishes the RankInfo."""
        super().initialize(model_provider)
        self._optimizer = make_optimizer(self.unwrap_model(), self.settings)

    def train_step(self, batch: DataProto, loss_func: LossFunc) -> dict[str, object]:
        """Takes one optimizer step on the rows of all data-parallel ranks."""
        model = self.unwrap_model()
        self.require_states(StateKind.GRADIENTS, StateKind.OPTIMIZER_STATES)
        model.train()
        counts = global_counts(batch, group=self.groups.world, copies=self.options.ulysses_size)
        plan = self._plan(batch)
        assert self._train_forward is not None
        self._forward = forward = self._train_forward
        last = len(plan.groups) - 1

        def backward(share: Tensor, index: int) -> None:
            self._backward(share, last=index == last)

        def idle(index: int) -> None:
            self._backward(forward.idle(self.device).sum() * 0.0, last=index == last)

        try:
            loss, metrics = run_micro_batches(
                batch,
                plan,
                loss_func,
                counts,
                forward=forward,
                backward=backward,
                idle=idle,
                device=self.context.device_type,
            )
        finally:
            forward.leave()
        step = take_step(self.optimizer, model, self.settings, step=self.steps)
        if not step.skipped:
            self.steps += 1
        reshard(model)
        return {**metrics, **self._report(loss, step)}

    def _plan(self, batch: DataProto) -> MicroBatches:
        batching = self.context.batching
        plan = plan_micro_batches(
            row_lengths(batch),
            rows=batching.train_rows,
            tokens=batching.train_tokens,
            packed=batching.packing,
            together=int(batch.meta_info.get("rows_together", 1)),
        )
        return self._equal(plan)

    def _backward(self, share: Tensor, *, last: bool) -> None:
        """Adds the gradient of a share of the global loss; ranks exchange gradients after the last
        micro-batch."""
        model = self.unwrap_model()
        if isinstance(model, FSDPModule):
            model.set_requires_gradient_sync(last)
        # FSDP averages over all ranks; a share is a share of the sum.
        torch.autograd.backward(share * self.context.world_size)

    def _report(self, loss: float, step: OptimizerStep) -> dict[str, object]:
        role = self.context.cluster_name
        values = {
            f"{role}/loss": sum_over(self.groups.world, loss) / self.options.ulysses_size,
            f"{role}/grad_norm": step.grad_norm,
            f"{role}/lr": step.learning_rate,
            f"{role}/skipped_steps": float(step.skipped),
        }
        # The same on every rank, so that any way of joining them over ranks gives the value itself.
        return {name: Metric.mean(value) for name, value in values.items()}

    def tensors_of(self, kind: StateKind) -> list[Tensor]:
        """Returns the tensors of one kind of state."""
        if kind is StateKind.OPTIMIZER_STATES:
            states = self.optimizer.state.values()
            return [
                value
                for state in states
                for value in state.values()
                if isinstance(value, Tensor) and value.dim()
            ]
        return super().tensors_of(kind)

    # -- checkpoints

    def save_checkpoint(
        self,
        save_dir: str,
        global_step: int,
        ckpt_id: str = "",
        tag: str = "checkpoint",
        local_state_path: str | None = None,
        **kwargs: object,
    ) -> dict[str, float]:
        """Saves model, optimizer, schedule and random state, whole or not at all."""
        self.require_states(StateKind.OPTIMIZER_STATES)
        return save_training(self, save_dir, global_step=global_step)

    def load_checkpoint(self, load_dir: str, tag: str = "checkpoint", **kwargs: object) -> None:
        """Loads what `save_checkpoint` saved; the next step is the one that would have come."""
        self.require_states(StateKind.OPTIMIZER_STATES)
        load_training(self, load_dir)

    # -- source of updates

    def setup_model_update(self, name: str, *, transport: Transport, **options: object) -> None:
        """Prepares updates under `name`; rank 0 sends."""
        if self._source is None:
            self._source = SourceRanks(self.context, self.options, self.groups)
        self._source.setup(name, transport)

    def model_update(self, name: str, version: int) -> dict[str, float]:
        """Gathers and sends the weights, bucket by bucket."""
        if self._source is None:
            raise self.unsupported(f"model_update({name!r}) before setup_model_update")
        self.require_states()
        model = self.unwrap_model()
        reshard(model)
        return self._source.send(name, model, version=version)
