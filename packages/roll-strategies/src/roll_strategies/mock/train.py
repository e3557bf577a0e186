"""`mock_train`: gradient descent on the tiny table of `mock_infer`."""

import json
import time
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from roll_protocol import DataProto, Metric
from roll_strategies.capabilities import Capabilities
from roll_strategies.context import StrategyContext
from roll_strategies.counts import columns_of, global_counts
from roll_strategies.errors import CheckpointError
from roll_strategies.interfaces import LossFunc, ModelProvider, TrainStrategy
from roll_strategies.microbatches import plan_micro_batches
from roll_strategies.mock.infer import MockInferStrategy
from roll_strategies.step import run_micro_batches
from roll_strategies.weights.plan import named_state
from roll_strategies.weights.sender import WeightSender
from roll_strategies.weights.transport import Transport


class MockTrainStrategy(MockInferStrategy, TrainStrategy):
    """Trains the table on this rank's rows alone: ranks do not talk to each other, so their tables differ."""

    strategy_name: ClassVar[str] = "mock_train"
    capabilities: ClassVar[Capabilities] = Capabilities(
        trains=True, generates=True, dynamic_batching=True, sleep=True
    )

    def __init__(self, context: StrategyContext) -> None:
        super().__init__(context)
        self.steps = 0
        self._senders: dict[str, WeightSender] = {}

    def initialize(self, model_provider: ModelProvider | None = None) -> None:
        """Builds the table and its optimizer."""
        super().initialize(model_provider)
        self.optimizer = torch.optim.SGD(
            self.unwrap_model().parameters(), lr=self.context.training.learning_rate
        )

    def train_step(self, batch: DataProto, loss_func: LossFunc) -> dict[str, object]:
        """Takes one step of gradient descent on this rank's rows."""
        model = self.unwrap_model()
        self.require_states()

        def forward(micro: DataProto) -> Tensor:
            logits: Tensor = model(columns_of(micro)["input_ids"])
            return logits

        loss, metrics = run_micro_batches(
            batch,
            plan_micro_batches(
                [1] * len(batch),
                rows=self.context.batching.train_rows,
                together=int(batch.meta_info.get("rows_together", 1)),
            ),
            loss_func,
            global_counts(batch),
            forward=forward,
            backward=_backward,
            idle=lambda index: None,
            device="cpu",
        )
        norm = torch.nn.utils.clip_grad_norm_(
            model.parameters(), self.context.training.max_grad_norm or float("inf")
        )
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
        role = self.context.cluster_name
        rate = self.context.training.learning_rate
        own = {f"{role}/loss": loss, f"{role}/grad_norm": float(norm), f"{role}/lr": rate}
        return {**metrics, **{name: Metric.mean(value) for name, value in own.items()}}

    def save_checkpoint(
        self,
        save_dir: str,
        global_step: int,
        ckpt_id: str = "",
        tag: str = "checkpoint",
        local_state_path: str | None = None,
        **kwargs: object,
    ) -> dict[str, float]:
        """Saves this rank's table."""
        started = time.monotonic()
        path = Path(save_dir)
        path.mkdir(parents=True, exist_ok=True)
        state = {name: tensor.detach() for name, tensor in named_state(self.unwrap_model()).items()}
        torch.save(state, path / f"mock_{self.context.rank}.pt")
        (path / f"mock_{self.context.rank}.json").write_text(
            json.dumps({"step": global_step, "steps": self.steps})
        )
        return {"save_seconds": time.monotonic() - started}

    def load_checkpoint(self, load_dir: str, tag: str = "checkpoint", **kwargs: object) -> None:
        """Loads this rank's table."""
        path = Path(load_dir) / f"mock_{self.context.rank}.pt"
        if not path.is_file():
            raise CheckpointError(
                f"no checkpoint of rank {self.context.rank} in {load_dir!r}: {path.name} is missing"
            )
        self.unwrap_model().load_state_dict(torch.load(path, weights_only=True))
        self.steps = int(json.loads(path.with_suffix(".json").read_text())["steps"])

    def setup_model_update(self, name: str, *, transport: Transport, **options: object) -> None:
        """Prepares updates under `name`; rank 0 sends."""
        self._senders[name] = WeightSender(
            transport=transport if self.context.rank == 0 else None,
            bucket_bytes=self.context.update_bucket_bytes,
            digest="full",
        )

    def model_update(self, name: str, version: int) -> dict[str, float]:
        """Sends the table of rank 0."""
        if name not in self._senders:
            raise self.unsupported(f"model_update({name!r}) before setup_model_update")
        return self._senders[name].send(named_state(self.unwrap_model()), version=version)


def _backward(share: Tensor, index: int) -> None:
    torch.autograd.backward(share)
