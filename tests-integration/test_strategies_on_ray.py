"""The full-batch oracle through the public API on Ray: cluster, dispatch, worker, strategy."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from roll_dispatch import Dispatch, register
from roll_executor import Cluster, Worker
from roll_pipelines import WorkerConfig
from roll_pipelines.config import ModelArguments, StrategyArguments, TrainingArguments
from roll_protocol import DataProto
from roll_resources import ResourceManager
from roll_strategies import LossSum, TrainStrategy, create_strategy

pytestmark = pytest.mark.ray

LENGTHS = [12, 3, 7, 5, 11, 4, 9]
STEPS = 3
RATE = 1e-3


class OracleWorker(Worker):
    """Trains with a strategy of its own for each case."""

    strategy: TrainStrategy

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config: Any) -> None:  # Any: see Worker
        super().initialize(pipeline_config)
        strategy = create_strategy(worker=self)
        assert isinstance(strategy, TrainStrategy)
        self.strategy = strategy
        strategy.initialize()

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False, prefetch=True)
    def train_step(self, data: DataProto) -> DataProto:
        metrics = self.strategy.train_step(data.to("cpu"), self.loss_func)
        return DataProto(meta_info={"metrics": metrics})

    def loss_func(self, data: DataProto, output_tensor: Tensor) -> LossSum:
        assert data.batch is not None
        return self.strategy.op_compute_language_loss(output_tensor, data.batch["labels"])

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def whole_state(self) -> dict[str, Tensor]:
        state = self.strategy.unwrap_model().state_dict()
        return {name: value.full_tensor().clone() for name, value in state.items()}


def rows() -> DataProto:
    draws = torch.Generator().manual_seed(3)
    ids = torch.randint(1, 48, (len(LENGTHS), 12), generator=draws)
    mask = (torch.arange(12)[None] < torch.tensor(LENGTHS)[:, None]).long()
    labels = torch.full_like(ids, -100)
    labels[:, :-1] = torch.where(mask[:, 1:].bool(), ids[:, 1:], -100)
    return DataProto.from_single_dict({"input_ids": ids * mask, "attention_mask": mask, "labels": labels})


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=48,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=False,
    )
    model = transformers.AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]  # transformers
    model.save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def plain(model_dir: Path) -> tuple[list[float], dict[str, Tensor]]:
    """Losses and weights of one process that knows nothing of roll, row after row without padding."""
    model = transformers.AutoModelForCausalLM.from_pretrained(model_dir)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.1)
    batch = rows().batch
    assert batch is not None
    losses = []
    for _ in range(STEPS):
        parts = []
        for length, ids, labels in zip(LENGTHS, batch["input_ids"], batch["labels"], strict=True):
            logits = model(input_ids=ids[None, :length]).logits[0]
            parts.append(torch.nn.functional.cross_entropy(logits, labels[:length], reduction="sum"))
        loss = torch.stack(parts).sum() / (batch["labels"] != -100).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, dict(model.state_dict())


@pytest.fixture(scope="module")
def manager() -> Iterator[ResourceManager]:
    with ResourceManager() as opened:
        yield opened


def worker_config(
    model_dir: Path, *, world_size: int, config: dict[str, object], **settings: Any
) -> WorkerConfig:  # Any: fields of WorkerConfig
    training = TrainingArguments(
        learning_rate=RATE,
        weight_decay=0.1,
        adam_beta2=0.999,
        max_grad_norm=1.0,
        per_device_train_batch_size=settings.pop("rows", 2),
    )
    return WorkerConfig(
        name="oracle",
        world_size=world_size,
        strategy_args=StrategyArguments(strategy_name="fsdp2_train", strategy_config=config),
        model_args=ModelArguments(model_name_or_path=str(model_dir)),
        training_args=training,
        **settings,
    )


PACKED: dict[str, object] = {
    "use_sequence_packing": True,
    "use_dynamic_batching_in_train": True,
    "max_tokens_per_microbatch_in_train": 16,
}
CASES: list[tuple[int, dict[str, object], dict[str, object]]] = [
    (2, {}, {"rows": 1}),
    (2, {"ulysses_size": 2}, PACKED),
    (4, {"fsdp_size": 2, "ulysses_size": 2}, {"rows": 2}),
]


@pytest.mark.parametrize(("world_size", "config", "settings"), CASES)
def test_a_cluster_of_sharded_workers_equals_one_plain_process(
    manager: ResourceManager,
    model_dir: Path,
    plain: tuple[list[float], dict[str, Tensor]],
    world_size: int,
    config: dict[str, object],
    settings: dict[str, object],
) -> None:
    losses, state = plain
    role = worker_config(model_dir, world_size=world_size, config=config, **settings)
    with Cluster(
        name="oracle", worker_cls=OracleWorker, resource_manager=manager, worker_config=role
    ) as cluster:
        cluster.initialize(pipeline_config=SimpleNamespace(seed=1))
        found = [float(cluster.train_step(rows()).meta_info["metrics"]["oracle/loss"]) for _ in range(STEPS)]
        states = cluster.whole_state()
    assert max(abs(a - b) for a, b in zip(found, losses, strict=True)) < 1e-6
    for theirs in states:
        for name, value in state.items():
            assert (theirs[name] - value).abs().max() < 2e-5, name
