"""Adapters: only they learn, exactly as peft's do, targets receive the sum, and a checkpoint holds both."""

import sys
from pathlib import Path

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
    StrategyNotInstalled,
    TrainSettings,
    WeightSyncError,
    build_strategy,
)
from roll_strategies.fsdp2 import Fsdp2TrainStrategy
from roll_strategies.hf import HfInferStrategy
from roll_strategies.hf.lora import is_adapter, plain_name
from roll_strategies.testing import DirectTransport, run_ranks, whole_state

RANK, ALPHA, RATE = 3, 7.0, 1e-2
LAYERS = ("q_proj", "down_proj")


def lora_strategy(
    directory: str,
    *,
    rank: int = 0,
    world_size: int = 1,
    port: int = 0,
    target: tuple[str, ...] = LAYERS,
    **options: object,
) -> Fsdp2TrainStrategy:
    context = StrategyContext(
        strategy_name="fsdp2_train",
        strategy_config=options,
        model_args=ModelSettings(
            model_name_or_path=directory, lora_rank=RANK, lora_alpha=ALPHA, lora_target=target
        ),
        training_args=TrainSettings(learning_rate=RATE),
        batching=BatchSettings(train_rows=2),
        update_bucket_bytes=4000,
        rank=rank,
        world_size=world_size,
        master_port=port,
    )
    strategy = build_strategy(context)
    assert isinstance(strategy, Fsdp2TrainStrategy)
    strategy.initialize()
    return strategy


def rows() -> dict[str, Tensor]:
    ids = torch.randint(1, 48, (4, 7), generator=torch.Generator().manual_seed(1))
    labels = torch.cat([ids[:, 1:], torch.full((4, 1), -100)], 1)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def step(strategy: Fsdp2TrainStrategy) -> None:
    info = strategy.rank_info
    batch = DataProto.from_single_dict(rows()).chunk(info.dp_size)[info.dp_rank]

    def loss(data: DataProto, output: Tensor) -> LossSum:
        assert data.batch is not None
        return strategy.op_compute_language_loss(output, data.batch["labels"])

    strategy.train_step(batch, loss)


def scores(strategy: InferenceStrategy, *, disable_adapter: bool = False) -> Tensor:
    batch = DataProto.from_single_dict(rows(), meta_info={"disable_adapter": disable_adapter})
    found = strategy.forward_step(batch, lambda data, output: (output.sum(), {"logits": output}))
    assert found is not None
    logits = found["logits"]
    assert isinstance(logits, Tensor)
    return logits


def plain_peft(directory: str, start: dict[str, Tensor]) -> nn.Module:
    """A model of peft's own with the adapters of another one, without anything of ours."""
    model = transformers.AutoModelForCausalLM.from_pretrained(directory)
    config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=list(LAYERS))  # type: ignore[arg-type]  # any number will do
    wrapped = peft.get_peft_model(model, config)
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            parameter.copy_(start[name.removeprefix("base_model.model.")])
    return wrapped


def plain_steps(model: nn.Module, count: int) -> None:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer, batch = torch.optim.AdamW(trained, lr=RATE, weight_decay=0.0), rows()
    for _ in range(count):
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()


def target_of(directory: str, **lora: object) -> HfInferStrategy:
    settings = ModelSettings(model_name_or_path=directory, **lora)  # type: ignore[arg-type]  # mixed value types
    target = build_strategy(StrategyContext(strategy_name="hf_infer", model_args=settings))
    assert isinstance(target, HfInferStrategy)
    target.initialize()
    return target


def receive(strategy: Fsdp2TrainStrategy, directory: str) -> dict[str, Tensor] | None:
    """What a target holds after an update, on rank 0."""
    targets = [target_of(directory)] if strategy.context.rank == 0 else []
    strategy.setup_model_update("pair", transport=DirectTransport(targets))
    strategy.model_update("pair", 1)
    return dict(targets[0].unwrap_model().state_dict()) if targets else None


Trained = tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor] | None]


def train_and_send(rank: int, world_size: int, port: int, directory: str, place: str) -> Trained:
    strategy = lora_strategy(directory, rank=rank, world_size=world_size, port=port)
    before = whole_state(strategy)
    plain = scores(strategy, disable_adapter=True)
    step(strategy)
    step(strategy)
    assert torch.equal(scores(strategy, disable_adapter=True), plain)
    assert not torch.allclose(scores(strategy, disable_adapter=False), plain, atol=1e-3)
    after = whole_state(strategy)
    for name, value in before.items():
        assert torch.equal(after[name], value) != is_adapter(name), name
    received = receive(strategy, directory)
    strategy.save_checkpoint(place, 2)
    return before, after, received


def test_adapters_learn_as_peft_does_and_reach_targets_and_checkpoints_as_peft_merges_them(
    tiny: Path, tmp_path: Path
) -> None:
    place = str(tmp_path / "step")
    (start, first, received), (other_start, second, _) = run_ranks(train_and_send, 2, str(tiny), place)
    for name, value in start.items():
        assert torch.equal(other_start[name], value), name
        assert torch.equal(second[name], first[name]), name

    twin = plain_peft(str(tiny), start)
    plain_steps(twin, 2)
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(first[name.removeprefix("base_model.model.")], value, atol=1e-6, rtol=0.0)

    loaded = peft.PeftModel.from_pretrained(
        transformers.AutoModelForCausalLM.from_pretrained(tiny), str(tmp_path / "step" / "adapter")
    )
    for name, value in loaded.state_dict().items():
        assert torch.equal(first[name.removeprefix("base_model.model.")], value), name
    merged = loaded.merge_and_unload().state_dict()
    exported = transformers.AutoModelForCausalLM.from_pretrained(place).state_dict()
    assert received is not None
    assert merged.keys() == received.keys() == exported.keys()
    for name, value in merged.items():
        assert torch.equal(received[name], value), name
        assert torch.equal(exported[name], value), name

    resumed = lora_strategy(str(tiny))
    resumed.load_checkpoint(place)
    for name, value in whole_state(resumed).items():
        assert torch.equal(first[name], value), name


@pytest.mark.parametrize("master", ["float32", "bfloat16"])
def test_targets_receive_the_bits_of_a_merge_in_the_sync_dtype(tiny: Path, master: str) -> None:
    strategy = lora_strategy(str(tiny), master_dtype=master, sync_dtype="bfloat16")
    step(strategy)
    received = receive(strategy, str(tiny))
    twin = plain_peft(str(tiny), whole_state(strategy)).to(getattr(torch, master))
    merged = twin.merge_and_unload()  # type: ignore[operator]  # peft hands methods through
    assert received is not None
    for name, value in merged.state_dict().items():
        assert torch.equal(received[name], value.to(torch.bfloat16).float()), name


def test_an_adapter_can_be_sent_alone(tiny: Path) -> None:
    strategy = lora_strategy(str(tiny), lora_update="adapter")
    step(strategy)
    target = target_of(str(tiny), lora_rank=RANK, lora_alpha=ALPHA, lora_target=LAYERS)
    strategy.setup_model_update("pair", transport=DirectTransport([target]))
    sent = strategy.model_update("pair", 1)
    ours, theirs = whole_state(strategy), whole_state(target)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(theirs[name], value), name
    bytes_of_adapter = sum(value.nbytes for name, value in ours.items() if is_adapter(name))
    assert bytes_of_adapter <= sent["bytes"] < bytes_of_adapter + 16 * len(ours)
    assert torch.equal(scores(target, disable_adapter=False), scores(strategy, disable_adapter=False))
    assert torch.equal(scores(target, disable_adapter=True), scores(target_of(str(tiny))))


def test_an_update_of_the_other_kind_is_refused_with_what_to_set(tiny: Path) -> None:
    strategy = lora_strategy(str(tiny), lora_update="adapter")
    strategy.setup_model_update("plain", transport=DirectTransport([target_of(str(tiny))]))
    with pytest.raises(WeightSyncError, match="sends an adapter, and the target has none"):
        strategy.model_update("plain", 1)
    whole = lora_strategy(str(tiny))
    adapted = target_of(str(tiny), lora_rank=RANK, lora_target=LAYERS)
    whole.setup_model_update("adapted", transport=DirectTransport([adapted]))
    with pytest.raises(WeightSyncError, match=r"sends whole weights.*strategy_config\.lora_update"):
        whole.model_update("adapted", 1)


def test_a_layer_that_is_not_there_is_named(tiny: Path) -> None:
    with pytest.raises(StrategyConfigError, match=r"no linear layer named \['w1'\]; it has \['down_proj'"):
        lora_strategy(str(tiny), target=("q_proj", "w1"))
    with pytest.raises(StrategyConfigError, match="'fsdp2_infer' of 'default' cannot do lora"):
        build_strategy(StrategyContext(strategy_name="fsdp2_infer", model_args=ModelSettings(lora_rank=4)))


def test_without_peft_the_extra_to_install_is_named(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(StrategyNotInstalled, match=r"pip install 'roll-strategies\[lora\]'"):
        lora_strategy(str(tiny))


def test_a_model_without_an_adapter_has_none_to_leave_out(tiny: Path) -> None:
    context = StrategyContext(
        strategy_name="fsdp2_infer", model_args=ModelSettings(model_name_or_path=str(tiny))
    )
    strategy = build_strategy(context)
    strategy.initialize()
    batch = DataProto.from_single_dict(rows(), meta_info={"disable_adapter": True})
    with pytest.raises(StrategyConfigError, match="asks for the model without its adapter, and it has none"):
        strategy.forward_step(batch, lambda data, output: (output.sum(), {}))


def test_every_linear_layer_but_the_head_gets_an_adapter_by_default(tiny: Path) -> None:
    strategy = lora_strategy(str(tiny), target=())
    state = whole_state(strategy)
    layers = {name.partition(".lora_")[0] for name in state if is_adapter(name)}
    assert len(layers) == 2 * 7
    assert "lm_head" not in layers
    assert {plain_name(name) for name in state if not is_adapter(name)} == set(
        transformers.AutoModelForCausalLM.from_pretrained(tiny).state_dict()
    )
