"""Critics and reward models: a number a token, or a number a row."""

from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor

from roll_protocol import DataProto, Metric
from roll_strategies import (
    BatchSettings,
    LossSum,
    ModelSettings,
    StrategyConfigError,
    StrategyContext,
    TrainSettings,
    TrainStrategy,
    build_strategy,
)
from roll_strategies.testing import whole_state

LENGTHS = [8, 3, 5, 6]


def batch() -> DataProto:
    draws = torch.Generator().manual_seed(2)
    ids = torch.randint(1, 48, (4, 8), generator=draws)
    mask = (torch.arange(8)[None] < torch.tensor(LENGTHS)[:, None]).long()
    returns = torch.randn(4, 8, generator=draws)
    return DataProto.from_single_dict({"input_ids": ids * mask, "attention_mask": mask, "returns": returns})


def column(data: DataProto, name: str) -> Tensor:
    assert data.batch is not None
    value = data.batch[name]
    assert isinstance(value, Tensor)
    return value


@pytest.fixture(scope="module")
def critic(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("critic")
    torch.manual_seed(3)
    config = transformers.AutoConfig.from_pretrained(tiny, num_labels=1)
    config.classifier_dropout = 0.0
    model = transformers.AutoModelForTokenClassification.from_pretrained(tiny, config=config)
    model.save_pretrained(place)
    return place


def engine(name: str, directory: Path, *, kind: str, batching: BatchSettings) -> object:
    context = StrategyContext(
        strategy_name=name,
        model_args=ModelSettings(model_name_or_path=str(directory), model_type=kind, num_labels=1),
        training_args=TrainSettings(learning_rate=1e-3),
        batching=batching,
    )
    strategy = build_strategy(context)
    strategy.initialize()
    return strategy


@pytest.mark.parametrize(
    "batching",
    [
        BatchSettings(train_rows=2),
        BatchSettings(train_tokens=10),
        BatchSettings(train_tokens=9, packing=True),
    ],
)
def test_a_value_head_learns_the_same_however_rows_are_divided(critic: Path, batching: BatchSettings) -> None:
    strategy = engine("fsdp2_train", critic, kind="token_classification", batching=batching)
    assert isinstance(strategy, TrainStrategy)

    def loss(data: DataProto, output: Tensor) -> LossSum:
        error = strategy.op_compute_values(output) - column(data, "returns")
        return LossSum((error.square() * column(data, "attention_mask")).sum(), "samples")

    metric = strategy.train_step(batch(), loss)["default/loss"]
    assert isinstance(metric, Metric)

    plain = transformers.AutoModelForTokenClassification.from_pretrained(critic)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3, weight_decay=0.0)
    total = torch.zeros(())
    for row, length in enumerate(LENGTHS):
        values = plain(input_ids=column(batch(), "input_ids")[row : row + 1, :length]).logits[0, :, 0]
        total = total + (values - column(batch(), "returns")[row, :length]).square().sum() / 4
    total.backward()  # type: ignore[no-untyped-call]  # torch
    optimizer.step()
    assert float(metric) == pytest.approx(float(total.detach()), abs=1e-5)
    state = whole_state(strategy)
    for name, value in plain.state_dict().items():
        assert (state[name] - value).abs().max() < 2e-5, name


def test_a_reward_model_gives_one_number_a_row(tiny: Path, tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tiny, num_labels=1)
    model.save_pretrained(tmp_path)
    from roll_strategies.hf import HfInferStrategy

    strategy = engine(
        "hf_infer", tmp_path, kind="sequence_classification", batching=BatchSettings(infer_rows=3)
    )
    assert isinstance(strategy, HfInferStrategy)
    scored = strategy.forward_step(batch(), lambda data, out: (out, {"score": out[:, 0]}))
    assert scored is not None
    model.eval()
    for row, length in enumerate(LENGTHS):
        with torch.no_grad():
            alone = model(input_ids=column(batch(), "input_ids")[row : row + 1, :length]).logits[0, 0]
        torch.testing.assert_close(torch.as_tensor(scored["score"])[row], alone, atol=1e-5, rtol=0)


def test_what_cannot_work_together_is_refused(tiny: Path) -> None:
    with pytest.raises(StrategyConfigError, match="'sequence_classification' reads the last token"):
        engine("fsdp2_train", tiny, kind="sequence_classification", batching=BatchSettings(packing=True))
    half = StrategyContext(strategy_name="fsdp2_train", model_args=ModelSettings(dtype="fp16"))
    with pytest.raises(StrategyConfigError, match="cannot train in fp16"):
        build_strategy(half)
