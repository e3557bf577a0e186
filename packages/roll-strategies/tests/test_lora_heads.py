"""An adapter of a critic or a reward model holds its head: it learns, travels and is saved with the rest."""

from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from torch import Tensor, nn

from roll_protocol import DataProto
from roll_strategies import (
    BatchSettings,
    InferenceStrategy,
    LossSum,
    ModelSettings,
    StrategyConfigError,
    StrategyContext,
    TrainSettings,
    build_strategy,
)
from roll_strategies.fsdp2 import Fsdp2TrainStrategy
from roll_strategies.hf import HfInferStrategy
from roll_strategies.hf.lora import attach, is_adapter, is_head
from roll_strategies.testing import DirectTransport, run_ranks, whole_state

RATE = 1e-2
CLASSES: dict[str, Any] = {  # Any: transformers gives its factories no types
    "token_classification": transformers.AutoModelForTokenClassification,
    "sequence_classification": transformers.AutoModelForSequenceClassification,
}


@pytest.fixture(scope="module")
def bodies(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A language model that has no such head yet, and a reward model that has one."""
    found = {}
    torch.manual_seed(3)
    config = transformers.AutoConfig.from_pretrained(tiny, num_labels=1)
    config.classifier_dropout = 0.0
    for kind, make in (
        ("token_classification", transformers.AutoModelForCausalLM),
        ("sequence_classification", transformers.AutoModelForSequenceClassification),
    ):
        found[kind] = tmp_path_factory.mktemp(kind)
        make.from_pretrained(tiny, config=config).save_pretrained(found[kind])
    return found


def settings(directory: str, kind: str, **options: object) -> ModelSettings:
    values: dict[str, Any] = {"lora_rank": 3, "lora_target": ("q_proj", "down_proj"), **options}  # Any: mixed
    return ModelSettings(model_name_or_path=directory, model_type=kind, **values)


def trainer(
    model: ModelSettings, *, rank: int = 0, world_size: int = 1, port: int = 0, **options: object
) -> Fsdp2TrainStrategy:
    context = StrategyContext(
        strategy_name="fsdp2_train",
        strategy_config=options,
        model_args=model,
        training_args=TrainSettings(learning_rate=RATE),
        batching=BatchSettings(train_rows=2),
        rank=rank,
        world_size=world_size,
        master_port=port,
    )
    strategy = build_strategy(context)
    assert isinstance(strategy, Fsdp2TrainStrategy)
    strategy.initialize()
    return strategy


def target_of(model: ModelSettings) -> HfInferStrategy:
    target = build_strategy(StrategyContext(strategy_name="hf_infer", model_args=model))
    assert isinstance(target, HfInferStrategy)
    target.initialize()
    return target


def ids() -> Tensor:
    return torch.randint(1, 48, (4, 7), generator=torch.Generator().manual_seed(1))


def batch(**meta_info: object) -> DataProto:
    columns = {"input_ids": ids(), "attention_mask": torch.ones_like(ids())}
    return DataProto.from_single_dict(columns, meta_info=meta_info)


def squares(output: Tensor) -> Tensor:
    return (output.float() - 1.0).square().sum()


def step(strategy: Fsdp2TrainStrategy) -> None:
    info = strategy.rank_info
    strategy.train_step(
        batch().chunk(info.dp_size)[info.dp_rank], lambda data, output: LossSum(squares(output), "samples")
    )


def scores(strategy: InferenceStrategy, **meta_info: object) -> Tensor:
    found = strategy.forward_step(batch(**meta_info), lambda data, output: (output.sum(), {"scores": output}))
    assert found is not None
    assert isinstance(found["scores"], Tensor)
    return found["scores"]


Trained = tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor] | None, Tensor]


def train_and_send(rank: int, world_size: int, port: int, directory: str, kind: str, place: str) -> Trained:
    strategy = trainer(settings(directory, kind), rank=rank, world_size=world_size, port=port)
    before, plain = whole_state(strategy), scores(strategy, disable_adapter=True)
    step(strategy)
    step(strategy)
    assert torch.equal(scores(strategy, disable_adapter=True), plain)
    after = whole_state(strategy)
    for name, value in before.items():
        assert torch.equal(after[name], value) != is_adapter(name), name
    targets = [target_of(settings(directory, kind, lora_rank=0))] if rank == 0 else []
    strategy.setup_model_update("pair", transport=DirectTransport(targets))
    strategy.model_update("pair", 1)
    strategy.save_checkpoint(place, 2)
    received = dict(targets[0].unwrap_model().state_dict()) if targets else None
    return before, after, received, scores(strategy)


def steps_of_peft(directory: str, kind: str, start: dict[str, Tensor], count: int) -> dict[str, Tensor]:
    """What a plain loop over a model of peft's own learns from the same start."""
    config = peft.LoraConfig(
        task_type="TOKEN_CLS" if kind == "token_classification" else "SEQ_CLS",
        r=3,
        lora_alpha=6,
        target_modules=["q_proj", "down_proj"],
    )
    model = peft.get_peft_model(CLASSES[kind].from_pretrained(directory, num_labels=1), config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(start[name.removeprefix("base_model.model.")])
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=0.0)
    for _ in range(count):
        loss = squares(model(input_ids=ids(), attention_mask=torch.ones_like(ids())).logits) / len(ids())
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return {name.removeprefix("base_model.model."): value for name, value in model.state_dict().items()}


@pytest.mark.parametrize("kind", list(CLASSES))
def test_heads_learn_as_those_of_peft_and_are_part_of_the_adapter_wherever_it_goes(
    bodies: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    directory, place = str(bodies[kind]), str(tmp_path / "step")
    (start, first, received, seen), (_, second, _, _) = run_ranks(train_and_send, 2, directory, kind, place)
    for name, value in first.items():
        assert torch.equal(second[name], value), name
    assert any(is_head(name) for name in first)
    for name, value in steps_of_peft(directory, kind, start, 2).items():
        torch.testing.assert_close(first[name], value, atol=1e-6, rtol=0.0)

    base = CLASSES[kind].from_pretrained(directory, num_labels=1)
    loaded = peft.PeftModel.from_pretrained(base, str(tmp_path / "step" / "adapter")).eval()
    state = loaded.state_dict()
    for name, value in first.items():
        assert not is_adapter(name) or torch.equal(state[f"base_model.model.{name}"], value), name
    with torch.no_grad():
        again = loaded(input_ids=ids(), attention_mask=torch.ones_like(ids())).logits
    torch.testing.assert_close(again, seen, atol=1e-5, rtol=0.0)

    merged = loaded.merge_and_unload().state_dict()
    exported = CLASSES[kind].from_pretrained(place).state_dict()
    assert received is not None
    assert merged.keys() == received.keys() == exported.keys()
    for name, value in merged.items():
        assert torch.equal(received[name], value), name
        assert torch.equal(exported[name], value), name


def test_a_critic_with_an_adapter_resumes_and_sends_its_head_with_the_adapter(
    bodies: dict[str, Path], tmp_path: Path
) -> None:
    kind = "token_classification"
    model = settings(str(bodies[kind]), kind)
    strategy = trainer(model, lora_update="adapter")
    step(strategy)
    strategy.save_checkpoint(str(tmp_path / "step"), 1)
    step(strategy)
    resumed = trainer(model, lora_update="adapter")
    resumed.load_checkpoint(str(tmp_path / "step"))
    step(resumed)
    ours, theirs = whole_state(strategy), whole_state(resumed)
    assert all(torch.equal(theirs[name], value) for name, value in ours.items())

    target = target_of(model)
    strategy.setup_model_update("pair", transport=DirectTransport([target]))
    strategy.model_update("pair", 1)
    assert torch.equal(scores(target), scores(strategy))


def test_a_frozen_head_stays_as_it_is_and_the_head_gets_no_adapter_beside(bodies: dict[str, Path]) -> None:
    kind = "sequence_classification"
    strategy = trainer(settings(str(bodies[kind]), kind, lora_target=(), freeze_module_prefix=("score",)))
    before = whole_state(strategy)
    step(strategy)
    changed = {name for name, value in whole_state(strategy).items() if not torch.equal(before[name], value)}
    assert changed
    assert all(is_adapter(name) and "score" not in name for name in changed)
    with pytest.raises(StrategyConfigError, match=r"no linear layer named \['score'\]"):
        trainer(settings(str(bodies[kind]), kind, lora_target=("score",)))


def test_a_model_that_does_not_name_its_body_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(StrategyConfigError, match="Sequential does not name its body"):
        attach(model, ModelSettings(model_type="token_classification", lora_rank=2))
