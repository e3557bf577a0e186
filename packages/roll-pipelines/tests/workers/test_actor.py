"""The policy worker in this process, on a real engine, against plain PyTorch."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from roll_executor import Cluster, WorkerRaisedError
from roll_pipelines.columns import tensor
from roll_pipelines.config import WorkerConfig
from roll_pipelines.config.arguments import ModelArguments, StrategyArguments, TrainingArguments
from roll_pipelines.data import TinyModelConfig, save_tiny_model
from roll_pipelines.losses.kl import kl_estimate
from roll_pipelines.losses.policy import ppo_clip_loss
from roll_pipelines.rlvr import RLVRConfig
from roll_protocol import DataProto, reduce_metrics
from roll_resources import ResourceManager


@dataclass
class Run:
    """One actor with its configuration and the weights that it started from."""

    cluster: Cluster
    model: Path
    rows: DataProto = field(default_factory=DataProto)


def rows_of(count: int) -> DataProto:
    """Rows of different lengths with advantages; some of their tokens are clipped."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 8, (count, 7), generator=generator)
    lengths = torch.arange(count) % 4 + 3
    positions = torch.arange(7)
    attention = (positions < lengths[:, None]).long()
    response = attention * (positions >= 2).long()
    old = -2.0 + torch.rand(count, 6, generator=generator)
    return DataProto.from_single_dict(
        {
            "input_ids": ids * attention,
            "attention_mask": attention,
            "response_mask": response,
            "old_log_probs": old,
            "ref_log_probs": old - 0.1,
            "advantages": torch.randn(count, 6, generator=generator) * response[:, 1:],
        }
    )


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    model = save_tiny_model(
        tmp_path / "model", TinyModelConfig(alphabet="abcde", hidden_size=16, num_layers=1), seed=0
    )
    role = WorkerConfig(
        strategy_args=StrategyArguments(strategy_name="fsdp2_train"),
        model_args=ModelArguments(model_name_or_path=str(model)),
        training_args=TrainingArguments(
            learning_rate=0.1,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=4,
            max_grad_norm=None,
        ),
        infer_batch_size=3,
    )
    config = RLVRConfig(
        runtime="local", actor_train=role, kl_loss_coef=0.1, prompt_length=2, response_length=5
    )
    with (
        ResourceManager(runtime="local") as manager,
        Cluster("actor_train", "roll_pipelines.workers.ActorWorker", manager, role) as cluster,
    ):
        cluster.initialize(pipeline_config=config)
        yield Run(cluster, model)


def log_probs_of(model: torch.nn.Module, rows: DataProto) -> torch.Tensor:
    ids = tensor(rows, "input_ids")
    logits = model(input_ids=ids, attention_mask=tensor(rows, "attention_mask")).logits[:, :-1]
    return torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None])[..., 0]


def test_log_probs_equal_those_of_the_plain_model_and_are_zero_elsewhere(run: Run) -> None:
    rows = rows_of(7)
    model = AutoModelForCausalLM.from_pretrained(run.model)
    mask = tensor(rows, "response_mask")[:, 1:]
    expected = (log_probs_of(model, rows) * mask).detach()
    found = tensor(run.cluster.compute_log_probs(rows), "log_probs")
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_one_step_has_the_loss_and_the_gradient_norm_of_plain_pytorch(run: Run) -> None:
    rows = rows_of(8)
    model = AutoModelForCausalLM.from_pretrained(run.model)
    mask = tensor(rows, "response_mask")[:, 1:]
    log_probs = log_probs_of(model, rows)
    losses = ppo_clip_loss(log_probs, tensor(rows, "old_log_probs"), tensor(rows, "advantages"))
    losses = losses + 0.1 * kl_estimate(log_probs, tensor(rows, "ref_log_probs"))
    loss = (losses * mask).sum() / mask.sum()
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    metrics = reduce_metrics(run.cluster.train_step(rows).meta_info["metrics"])
    assert metrics["actor_train/loss"] == pytest.approx(loss.item(), abs=1e-6)
    assert metrics["actor_train/grad_norm"] == pytest.approx(norm.item(), rel=1e-5)
    assert 0 < metrics["actor_train/clip_fraction"] < 1


def test_metrics_are_means_over_tokens_whatever_the_micro_batches(run: Run) -> None:
    rows = rows_of(8)
    mask = tensor(rows, "response_mask")[:, 1:] != 0
    log_probs = tensor(run.cluster.compute_log_probs(rows), "log_probs")
    expected = (log_probs - tensor(rows, "old_log_probs")).exp()[mask].mean()
    metrics = reduce_metrics(run.cluster.train_step(rows).meta_info["metrics"])
    assert metrics["actor_train/ratio"] == pytest.approx(expected.item(), rel=1e-5)


def test_mini_batches_take_one_optimizer_step_each(run: Run) -> None:
    rows = rows_of(8)
    rows.meta_info["mini_batches"] = 4
    one, four = rows_of(8), rows
    first = run.cluster.train_step(one).meta_info["metrics"]["actor_train/loss"]
    rest = run.cluster.train_step(four).meta_info["metrics"]["actor_train/loss"]
    assert len(first.contributions) == 1
    assert len(rest.contributions) == 4


def test_a_batch_without_an_answer_token_changes_no_weight(run: Run) -> None:
    rows = rows_of(4)
    before = tensor(run.cluster.compute_log_probs(rows), "log_probs")
    empty = rows_of(4)
    empty["response_mask"] = torch.zeros_like(tensor(empty, "response_mask"))
    metrics = reduce_metrics(run.cluster.train_step(empty).meta_info["metrics"])
    assert metrics["actor_train/grad_norm"] == 0
    assert torch.equal(tensor(run.cluster.compute_log_probs(rows), "log_probs"), before)


def test_a_role_that_only_infers_is_told_so_when_it_is_asked_to_train(run: Run) -> None:
    role = WorkerConfig(
        strategy_args=StrategyArguments(strategy_name="hf_infer"),
        model_args=ModelArguments(model_name_or_path=str(run.model)),
    )
    with (
        ResourceManager(runtime="local") as manager,
        Cluster("reference", "roll_pipelines.workers.ActorWorker", manager, role) as reference,
    ):
        reference.initialize(pipeline_config=RLVRConfig())
        with pytest.raises(
            WorkerRaisedError, match="'reference' is asked to train, but its strategy 'hf_infer'"
        ):
            reference.train_step(rows_of(2))
