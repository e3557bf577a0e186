"""What training and inference with FSDP2 share: groups, model and scoring."""

from typing import Any, ClassVar

import torch
from torch import nn

from roll_protocol import DataProto
from roll_strategies.capabilities import Capabilities
from roll_strategies.context import StrategyContext
from roll_strategies.errors import StrategyConfigError
from roll_strategies.fsdp2.forward import LaidOutForward
from roll_strategies.fsdp2.groups import Groups, largest_over, make_groups
from roll_strategies.fsdp2.loading import build_model
from roll_strategies.fsdp2.options import Fsdp2Options
from roll_strategies.fsdp2.sharding import reshard
from roll_strategies.hf import lora
from roll_strategies.hf.models import torch_dtype
from roll_strategies.holding import ModelHolder
from roll_strategies.interfaces import ForwardFunc, ModelProvider
from roll_strategies.microbatches import MicroBatches, plan_micro_batches
from roll_strategies.ops.layout import Layout
from roll_strategies.options import read_options
from roll_strategies.providers import default_tokenizer
from roll_strategies.results import joined_results, take_rows
from roll_strategies.rows import row_lengths


class Fsdp2Strategy(ModelHolder):
    """A model sharded over all ranks of the role."""

    trainable: ClassVar[bool] = False

    def __init__(self, context: StrategyContext) -> None:
        self.options = read_options(Fsdp2Options, context.strategy_config, engine=context.strategy_name)
        super().__init__(context)
        self.options.shard_size(context.world_size)
        master = torch_dtype(self.options.master_dtype, path="strategy_config.master_dtype")
        compute = self.options.param_dtype or context.model.dtype
        self.compute_dtype = torch_dtype(compute, path="strategy_config.param_dtype")
        if master == torch.float64:
            self.compute_dtype = master
        self._check_model_choice()
        self._groups: Groups | None = None
        self._train_forward: LaidOutForward | None = None
        self._infer_forward: LaidOutForward | None = None
        self._forward: LaidOutForward | None = None

    def _check_model_choice(self) -> None:
        context = self.context
        batching = context.batching
        if self.trainable and self.compute_dtype == torch.float16:
            raise StrategyConfigError(
                f"{context.strategy_name!r} of {context.cluster_name!r} cannot train in fp16, whose "
                "gradients "
                "overflow without loss scaling; set model_args.dtype (or strategy_config.param_dtype) to "
                "bf16"
            )
        moved = (
            batching.packing
            or batching.train_tokens
            or batching.infer_tokens
            or self.options.ulysses_size > 1
        )
        if context.model.model_type == "sequence_classification" and moved:
            raise StrategyConfigError(
                "model_args.model_type 'sequence_classification' reads the last token of padded rows: it "
                "cannot be "
                "combined with packing, a token budget or split sequences; use 'token_classification'"
            )

    def wanted(self) -> Capabilities:
        """Returns what the configuration asks for."""
        return Capabilities(
            **{
                **{
                    name: getattr(super(Fsdp2Strategy, self).wanted(), name)
                    for name in ("dynamic_batching", "packing", "lora")
                },
                "context_parallel": self.options.ulysses_size > 1,
            }
        )

    @property
    def groups(self) -> Groups:
        """The process groups; they exist once `initialize` has run."""
        self.unwrap_model()
        assert self._groups is not None
        return self._groups

    def initialize(self, model_provider: ModelProvider | None = None) -> None:
        """Joins the group, builds and shards the model, and publishes the RankInfo."""
        context = self.context
        if context.device_type == "cuda":
            torch.cuda.set_device(min(context.local_rank, torch.cuda.device_count() - 1))
        self._groups = make_groups(context, self.options)
        if context.model.model_name_or_path:
            self.tokenizer = default_tokenizer(context.model_args)
        model = self._build(model_provider)
        self.hold(model, digest=self.options.digest)
        shard = self._groups.sequence
        batching = context.batching
        common: dict[str, Any] = {"shard": shard, "packing": batching.packing}  # Any: keyword arguments
        self._train_forward = LaidOutForward(model, trim=batching.train_tokens is not None, **common)
        self._infer_forward = LaidOutForward(model, trim=batching.infer_tokens is not None, **common)
        self.publish(context.data_parallel(context_parallel_size=self.options.ulysses_size))

    def _build(self, model_provider: ModelProvider | None) -> nn.Module:
        assert self._groups is not None
        return build_model(
            self.context,
            self.options,
            self._groups,
            provider=model_provider,
            tokenizer=self.tokenizer,
            trainable=self.trainable,
            compute_dtype=self.compute_dtype,
        )

    def layout(self) -> Layout | None:
        """Returns how the current micro-batch is laid out."""
        return self._forward.layout if self._forward is not None else None

    def forward_step(self, batch: DataProto, forward_func: ForwardFunc) -> dict[str, object] | None:
        """Returns the results of `forward_func` over this rank's rows, in input order."""
        model = self.unwrap_model()
        self.require_states()
        batching = self.context.batching
        plan = self._equal(
            plan_micro_batches(
                row_lengths(batch),
                rows=int(batch.meta_info.get("micro_batch_size") or batching.infer_rows),
                tokens=batching.infer_tokens,
                packed=batching.packing,
            )
        )
        assert self._infer_forward is not None
        self._forward = forward = self._infer_forward
        parts = []
        training = model.training
        model.eval()
        with torch.no_grad(), lora.as_asked(model, batch.meta_info):
            try:
                for group in plan.groups:
                    if not group:
                        forward.idle(self.device)
                        continue
                    micro = take_rows(batch, group).to(self.context.device_type)
                    parts.append(forward_func(micro, forward(micro))[1])
            finally:
                forward.leave()
                model.train(training)
                # While the adapter is off: on again, it needs gradients, and the optimizer has the shards.
                reshard(model)
        return joined_results(parts, plan)

    def _equal(self, plan: MicroBatches) -> MicroBatches:
        """Returns the plan with as many micro-batches as the rank that has the most: sharded layers need all
        ranks."""
        return plan.with_count(largest_over(self.groups.world, len(plan.groups)))

    def settle(self) -> None:
        """Frees gathered parameters."""
        reshard(self.unwrap_model())
