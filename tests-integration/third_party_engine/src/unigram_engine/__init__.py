"""An engine for roll in one file: every token has one probability, whatever stands before it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from roll_protocol import DataProto, Metric
from roll_strategies import (
    Capabilities,
    CheckpointError,
    ForwardFunc,
    LossFunc,
    ModelHolder,
    ModelProvider,
    StrategyContext,
    TrainStrategy,
    global_counts,
    joined_results,
    plan_micro_batches,
    read_options,
    row_lengths,
    run_micro_batches,
    take_rows,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnigramOptions:
    """The options of `unigram_train`."""

    vocab_size: int = 32
    """Number of tokens."""


class Unigram(nn.Module):
    """Logits that depend on nothing."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, input_ids: Tensor) -> Tensor:
        """Returns logits [B, S, V]."""
        return self.bias.expand(*input_ids.shape, -1)


class UnigramStrategy(ModelHolder, TrainStrategy):
    """Trains token frequencies in one process."""

    strategy_name: ClassVar[str] = "unigram_train"
    capabilities: ClassVar[Capabilities] = Capabilities(trains=True, sleep=True)

    def __init__(self, context: StrategyContext) -> None:
        super().__init__(context)
        self.options = read_options(UnigramOptions, context.strategy_config, engine="unigram_train")

    def initialize(self, model_provider: ModelProvider | None = None) -> None:
        """Builds the model and publishes coordinates."""
        model = Unigram(self.options.vocab_size)
        self.hold(model, digest="full")
        self._optimizer = torch.optim.SGD(model.parameters(), lr=self.context.training.learning_rate)
        self.publish(self.context.data_parallel())

    def _forward(self, micro: DataProto) -> Tensor:
        assert micro.batch is not None
        logits: Tensor = self.unwrap_model()(micro.batch["input_ids"])
        return logits

    def forward_step(self, batch: DataProto, forward_func: ForwardFunc) -> dict[str, object] | None:
        """Returns the results of `forward_func` over all rows, in input order."""
        self.require_states()
        plan = plan_micro_batches(row_lengths(batch), rows=self.context.batching.infer_rows)
        with torch.no_grad():
            micros = [take_rows(batch, group) for group in plan.groups]
            parts = [forward_func(micro, self._forward(micro))[1] for micro in micros]
        return joined_results(parts, plan)

    def train_step(self, batch: DataProto, loss_func: LossFunc) -> dict[str, object]:
        """Takes one optimizer step on all rows."""
        self.require_states()
        loss, metrics = run_micro_batches(
            batch,
            plan_micro_batches(row_lengths(batch), rows=self.context.batching.train_rows),
            loss_func,
            global_counts(batch),
            forward=self._forward,
            backward=lambda share, index: torch.autograd.backward(share),
            idle=lambda index: None,
            device=self.context.device_type,
        )
        self._optimizer.step()
        self._optimizer.zero_grad()
        return {**metrics, f"{self.context.cluster_name}/loss": Metric.mean(loss)}

    def save_checkpoint(
        self,
        save_dir: str,
        global_step: int,
        ckpt_id: str = "",
        tag: str = "checkpoint",
        local_state_path: str | None = None,
        **kwargs: object,
    ) -> dict[str, float]:
        """Saves the logits."""
        Path(save_dir).mkdir(parents=True, exist_ok=True)
        bias = self.unwrap_model().state_dict()["bias"].tolist()
        (Path(save_dir) / "unigram.json").write_text(json.dumps({"step": global_step, "bias": bias}))
        return {}

    def load_checkpoint(self, load_dir: str, tag: str = "checkpoint", **kwargs: object) -> None:
        """Loads the logits."""
        path = Path(load_dir) / "unigram.json"
        if not path.is_file():
            raise CheckpointError(f"no checkpoint in {load_dir!r}")
        self.unwrap_model().load_state_dict({"bias": torch.tensor(json.loads(path.read_text())["bias"])})
