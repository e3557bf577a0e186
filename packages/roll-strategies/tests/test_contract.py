"""The contract kit: engines here keep it, and broken ones are caught."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from roll_protocol import DataProto
from roll_strategies import (
    BatchSettings,
    ForwardFunc,
    InferenceStrategy,
    LossFunc,
    LossSum,
    ModelSettings,
    StrategyContext,
    TrainSettings,
    TrainStrategy,
    build_strategy,
)
from roll_strategies.mock import MockTrainStrategy
from roll_strategies.testing import (
    Make,
    check_generation,
    check_resume,
    check_scoring,
    check_states,
    check_training,
    check_update_target,
)


def context_for(name: str, directory: Path, batching: BatchSettings) -> StrategyContext:
    return StrategyContext(
        strategy_name=name,
        model_args=ModelSettings(model_name_or_path=str(directory)),
        training_args=TrainSettings(learning_rate=1e-3),
        batching=batching,
    )


def maker(name: str, directory: Path) -> Make[InferenceStrategy]:
    def make(batching: BatchSettings) -> InferenceStrategy:
        strategy = build_strategy(context_for(name, directory, batching))
        strategy.initialize()
        return strategy

    return make


def trainer(name: str, directory: Path) -> Make[TrainStrategy]:
    def make(batching: BatchSettings) -> TrainStrategy:
        strategy = maker(name, directory)(batching)
        assert isinstance(strategy, TrainStrategy)
        return strategy

    return make


ENGINES = ["hf_infer", "fsdp2_infer", "fsdp2_train", "mock_infer", "mock_train"]


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_scores_sleeps_and_takes_weights_by_the_contract(name: str, tiny: Path) -> None:
    check_scoring(maker(name, tiny), vocab_size=48)
    check_states(maker(name, tiny))
    check_update_target(maker(name, tiny))


@pytest.mark.parametrize("name", ["hf_infer", "mock_infer"])
def test_engines_that_generate_do_so_by_the_contract(name: str, tiny: Path) -> None:
    check_generation(maker(name, tiny), vocab_size=48)


@pytest.mark.parametrize("name", ["fsdp2_train", "mock_train"])
def test_engines_that_train_do_so_by_the_contract(name: str, tiny: Path) -> None:
    check_training(trainer(name, tiny), vocab_size=48)
    check_resume(trainer(name, tiny), vocab_size=48)


class Unordered(MockTrainStrategy):
    def forward_step(self, batch: DataProto, forward_func: ForwardFunc) -> dict[str, object] | None:
        return super().forward_step(batch.select_idxs(list(range(len(batch)))[::-1]), forward_func)


class MeanOfMeans(MockTrainStrategy):
    def train_step(self, batch: DataProto, loss_func: LossFunc) -> dict[str, object]:
        def local(data: DataProto, out: Tensor) -> LossSum:
            found = loss_func(data, out)
            assert isinstance(found, LossSum)
            mask = data.batch["response_mask"]  # type: ignore[index]  # there is one
            return LossSum(found.value / mask[:, 1:].sum() * 7, "samples", found.metrics)

        return super().train_step(batch, local)


class Scribbler(MockTrainStrategy):
    def train_step(self, batch: DataProto, loss_func: LossFunc) -> dict[str, object]:
        def scribble(data: DataProto, out: Tensor) -> LossSum:
            found = loss_func(data, out)
            assert isinstance(found, LossSum)
            value = found.metrics["value"]
            assert isinstance(value, Tensor)
            value.mul_(0.5)
            return found

        return super().train_step(batch, scribble)


class Forgetful(MockTrainStrategy):
    def load_checkpoint(self, load_dir: str, tag: str = "checkpoint", **kwargs: object) -> None:
        return


class Sleepwalker(MockTrainStrategy):
    def offload_states(self, include: Sequence[str] | None = None, non_blocking: bool = False) -> None:
        with torch.no_grad():
            self.unwrap_model().table.zero_()  # type: ignore[operator]  # a tensor


class Babbler(MockTrainStrategy):
    def generate(self, batch: DataProto, generation_config: Mapping[str, object]) -> DataProto:
        answers = super().generate(batch, generation_config)
        answers.batch["infer_logprobs"] = answers.batch["infer_logprobs"] + 1e3  # type: ignore[index]  # there is one
        return answers


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (Unordered, "must keep the order of rows"),
        (MeanOfMeans, "depends on the size of micro-batches"),
        (Scribbler, "changed a metric that a loss function had returned"),
        (Forgetful, "is another after resuming"),
        (Sleepwalker, "is another after offload_states"),
        (Babbler, "log-probabilities must not be above 0"),
    ],
)
def test_a_broken_engine_is_caught_with_what_it_broke(
    engine: type[MockTrainStrategy], message: str, tiny: Path
) -> None:
    def make(batching: BatchSettings) -> MockTrainStrategy:
        strategy = engine(context_for("mock_train", tiny, batching))
        strategy.initialize()
        return strategy

    def whole_kit() -> None:
        check_scoring(make, vocab_size=48)
        check_generation(make, vocab_size=48)
        check_states(make)
        check_update_target(make)
        check_training(make, vocab_size=48)
        check_resume(make, vocab_size=48)

    with pytest.raises(AssertionError, match=message):
        whole_kit()
