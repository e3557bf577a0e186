"""The full-batch oracle through the public API on Ray: cluster, dispatch, worker, strategy.

However rows are dealt to workers, groups of workers, micro-batches, packed sequences and pieces of sequences,
three steps give the losses, the gradient norms and the parameters of one plain process.

Adam divides the scale of a gradient away, so equal parameters alone would let a gradient pass that is
twice too large: the norm before clipping is compared too. Clipping acts (the norms are above 1), weight decay
is on, and `adam_epsilon` is PyTorch's 1e-8, at which the noise of a gradient that should be 0 becomes a whole
step: a larger one would hide it.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
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
from roll_strategies import LossSum, TrainStrategy, create_strategy, plan_micro_batches
from roll_strategies.testing import small_llama

pytestmark = pytest.mark.ray

LENGTHS = [14, 7, 9, 8, 3, 12, 5, 14, 14, 8, 7, 10, 2, 13, 6]
"""15 rows: four workers have 4, 4, 4 and 3 of them, two pairs of workers 8 and 7."""
WORLD, STEPS, RATE, DECAY = 4, 3, 1e-3, 0.1
LIMITS = {"float32": (1e-6, 2e-5), "float64": (1e-10, 1e-10)}
"""Largest difference of a loss, and of a parameter."""


@dataclass(frozen=True)
class Plain:
    """What one process found that knows nothing of roll."""

    losses: list[float]
    norms: list[float]
    state: dict[str, Tensor]


class OracleWorker(Worker):
    """Makes a new strategy whenever it is initialized, from the role that it is told."""

    strategy: TrainStrategy

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config: Any) -> None:  # Any: see Worker
        super().initialize(pipeline_config)
        self.worker_config = pipeline_config.role
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
        loss = self.strategy.op_compute_language_loss(output_tensor, data.batch["labels"])
        return LossSum(loss.value, loss.denominator, {"micro_batches@sum": 1})

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def whole_state(self) -> dict[str, Tensor]:
        state = self.strategy.unwrap_model().state_dict()
        return {name: value.full_tensor().clone() for name, value in state.items()}


def rows() -> DataProto:
    draws = torch.Generator().manual_seed(3)
    ids = torch.randint(1, 48, (len(LENGTHS), 14), generator=draws)
    mask = (torch.arange(14)[None] < torch.tensor(LENGTHS)[:, None]).long()
    labels = torch.full_like(ids, -100)
    labels[:, :-1] = torch.where(mask[:, 1:].bool(), ids[:, 1:], -100)
    return DataProto.from_single_dict({"input_ids": ids * mask, "attention_mask": mask, "labels": labels})


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same small model in both dtypes."""
    places = {}
    for dtype in LIMITS:
        places[dtype] = tmp_path_factory.mktemp(dtype)
        model = small_llama()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(4.0 if parameter.dim() > 1 else 1.0)  # gradients of a norm above 1
        model.to(getattr(torch, dtype)).save_pretrained(places[dtype])  # type: ignore[operator]  # a transformers model
    return places


@pytest.fixture(scope="module")
def plain(models: dict[str, Path]) -> dict[str, Plain]:
    """Losses, norms and weights of one process, row after row without padding."""
    return {dtype: plain_run(place, getattr(torch, dtype)) for dtype, place in models.items()}


def plain_run(place: Path, dtype: torch.dtype) -> Plain:
    model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype=dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    batch = rows().batch
    assert batch is not None
    losses, norms = [], []
    for _ in range(STEPS):
        parts = []
        for length, ids, labels in zip(LENGTHS, batch["input_ids"], batch["labels"], strict=True):
            logits = model(input_ids=ids[None, :length]).logits[0]
            parts.append(torch.nn.functional.cross_entropy(logits, labels[:length], reduction="sum"))
        loss = torch.stack(parts).sum() / (batch["labels"] != -100).sum()
        torch.autograd.backward(loss)
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return Plain(losses, norms, dict(model.state_dict()))


@pytest.fixture(scope="module")
def cluster(ray_session: str, models: dict[str, Path]) -> Iterator[Any]:  # Any: as OracleWorker
    """Four workers, for all cases: starting them costs more than all that they compute."""
    with ResourceManager() as manager:
        role = worker_config(models["float32"], {}, {}, train_rows=1)
        with Cluster(
            name="oracle", worker_cls=OracleWorker, resource_manager=manager, worker_config=role
        ) as opened:
            yield opened


def worker_config(
    model_dir: Path, config: dict[str, object], settings: dict[str, Any], *, train_rows: int
) -> WorkerConfig:  # Any: fields of WorkerConfig
    return WorkerConfig(
        name="oracle",
        world_size=WORLD,
        strategy_args=StrategyArguments(strategy_name="fsdp2_train", strategy_config=config),
        model_args=ModelArguments(model_name_or_path=str(model_dir)),
        training_args=TrainingArguments(
            learning_rate=RATE,
            weight_decay=DECAY,
            adam_beta2=0.999,
            max_grad_norm=1.0,
            per_device_train_batch_size=train_rows,
        ),
        **settings,
    )


def division(way: str, accumulation: int, dealt: list[list[int]]) -> tuple[dict[str, Any], int]:
    """Returns settings under which the rank with most micro-batches has `accumulation`, and rows in one."""
    if way == "fixed":
        return {}, -(-max(len(lengths) for lengths in dealt) // accumulation)
    packed = way == "packed"

    def most(budget: int) -> int:
        plans = (plan_micro_batches(held, rows=1, tokens=budget, packed=packed) for held in dealt)
        return max(len(plan.groups) for plan in plans)

    budgets = range(max(LENGTHS), sum(LENGTHS) + 1)
    budget = next(tokens for tokens in budgets if most(tokens) <= accumulation)
    settings = {
        "use_sequence_packing": packed,
        "use_dynamic_batching_in_train": True,
        "max_tokens_per_microbatch_in_train": budget,
    }
    return settings, 1


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize("mesh", ["one group", "replicated groups"])
@pytest.mark.parametrize(
    ("way", "accumulation"), list(itertools.product(["fixed", "token budget", "packed"], [1, 2, 4]))
)
def test_a_cluster_of_sharded_workers_equals_one_plain_process(
    cluster: Any,  # Any: its methods are OracleWorker's
    models: dict[str, Path],
    plain: dict[str, Plain],
    way: str,
    accumulation: int,
    mesh: str,
    pieces: int,
    dtype: str,
) -> None:
    config: dict[str, object] = {
        "fsdp_size": 2 if mesh == "replicated groups" else 1,
        "ulysses_size": pieces,
        "master_dtype": dtype,
    }
    groups = WORLD // pieces
    batch = rows()
    share = -(-len(LENGTHS) // groups)
    dealt = [LENGTHS[start : start + share] for start in range(0, len(LENGTHS), share)]
    settings, train_rows = division(way, accumulation, dealt)
    role = worker_config(models[dtype], config, settings, train_rows=train_rows)
    cluster.initialize(pipeline_config=SimpleNamespace(seed=1, role=role))
    metrics = [cluster.train_step(batch).meta_info["metrics"] for _ in range(STEPS)]
    expected, (loss_limit, limit) = plain[dtype], LIMITS[dtype]
    for step, found in enumerate(metrics):
        assert abs(float(found["oracle/loss"]) - expected.losses[step]) < loss_limit
        assert abs(float(found["oracle/grad_norm"]) - expected.norms[step]) < 10 * loss_limit
        assert expected.norms[step] > 1
        # Every rank runs as many as the one with most; one that runs out of rows has an empty one.
        assert accumulation * (groups - 1) < float(found["micro_batches@sum"]) <= accumulation * groups
    for theirs in cluster.whole_state():
        for name, value in expected.state.items():
            assert (theirs[name] - value).abs().max() < limit, name
