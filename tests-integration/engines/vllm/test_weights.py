"""Weights that reach a real vLLM engine while it stands."""

from pathlib import Path

import pytest
import torch
from tiny_vllm import ENDLESS, Engine, column, expected_log_probs, make_engine, prompts, save_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from roll_strategies import Answer, StaleWeights, WeightSender, named_state
from roll_strategies.testing import DirectTransport


def changed_model(folder: Path, seed: int) -> nn.Module:
    """Returns the saved model with noise on every parameter."""
    model: nn.Module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draws) * 0.1)
    return model


def sent_by(model: nn.Module) -> dict[str, Tensor]:
    """Returns what a trainer sends: each tensor once, under one of its names."""
    once = {id(value): name for name, value in named_state(model).items()}
    return {name: value for name, value in named_state(model).items() if once[id(value)] == name}


def push(engine: Engine, tensors: dict[str, Tensor], *, version: int, bucket_bytes: int) -> None:
    WeightSender(transport=DirectTransport([engine]), bucket_bytes=bucket_bytes).send(
        tensors, version=version
    )


def assert_samples_like(engine: Engine, model: nn.Module) -> None:
    batch = prompts()
    answers = engine.generate(batch, {"max_new_tokens": 8, **ENDLESS})
    wanted = expected_log_probs(model, batch, answers, torch.ones(len(batch)))
    torch.testing.assert_close(column(answers, "infer_logprobs"), wanted, atol=5e-5, rtol=1e-5)


@pytest.mark.parametrize("bucket_bytes", [1, 100_000, 1 << 30])
def test_an_update_changes_what_is_sampled_to_the_new_weights(
    engine: Engine, model: Path, bucket_bytes: int
) -> None:
    new = changed_model(model, seed=bucket_bytes % 97)
    push(engine, sent_by(new), version=7, bucket_bytes=bucket_bytes)
    assert engine.weights_version == 7
    assert_samples_like(engine, new)


def test_every_parameter_of_an_update_matters(engine: Engine, model: Path) -> None:
    # One parameter at a time: a tensor that the engine dropped or put elsewhere would go unseen among others.
    for name in sent_by(changed_model(model, seed=1)):
        new = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        with torch.no_grad():
            new.get_parameter(name).add_(0.3)
        push(engine, sent_by(new), version=8, bucket_bytes=100_000)
        assert_samples_like(engine, new)


def test_a_foreign_parameter_is_refused_before_anything_changes(engine: Engine, model: Path) -> None:
    old = changed_model(model, seed=2)
    push(engine, sent_by(old), version=9, bucket_bytes=100_000)
    new = sent_by(changed_model(model, seed=3))
    for wrong in (new | {"no.such": torch.zeros(1)}, dict(list(new.items())[1:])):
        with pytest.raises(Exception, match=r"does not have|does not send"):
            push(engine, wrong, version=10, bucket_bytes=100_000)
    assert_samples_like(engine, old)


def test_an_update_given_up_halfway_lets_nothing_be_sampled_until_a_whole_one_came(
    engine: Engine, model: Path
) -> None:
    new = changed_model(model, seed=4)

    class Breaking(DirectTransport):
        def send(self, method: str, payload: object) -> Answer:
            if method == "commit_update":
                raise ConnectionError("the line is cut")
            return super().send(method, payload)

    with pytest.raises(Exception, match="the line is cut"):
        WeightSender(transport=Breaking([engine]), bucket_bytes=100_000).send(sent_by(new), version=11)
    with pytest.raises(StaleWeights, match="run a whole model_update"):
        engine.generate(prompts(), {"max_new_tokens": 2})
    push(engine, sent_by(new), version=12, bucket_bytes=100_000)
    assert_samples_like(engine, new)


@pytest.mark.parametrize("processes", [1, 2])
def test_tied_weights_arrive_at_both_their_places(tmp_path: Path, processes: int) -> None:
    folder = save_model(tmp_path / "tied", tied=True)
    strategy = make_engine(folder, tensor_parallel_size=processes)
    strategy.initialize()
    try:
        assert_samples_like(strategy, AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))
        for version in (1, 2):
            new = changed_model(folder, seed=version)
            push(strategy, sent_by(new), version=version, bucket_bytes=100_000)
            assert_samples_like(strategy, new)
    finally:
        strategy.close()
