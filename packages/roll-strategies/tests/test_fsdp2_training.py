"""What a sharded training strategy promises beside its numbers."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor
from torch.distributed.tensor import DTensor

from roll_protocol import DataProto, Metric
from roll_strategies import (
    BatchError,
    BatchSettings,
    CheckpointError,
    LossFunc,
    LossMean,
    LossSum,
    ModelSettings,
    StrategyConfigError,
    StrategyContext,
    TrainSettings,
    build_strategy,
)
from roll_strategies.fsdp2 import Fsdp2TrainStrategy
from roll_strategies.testing import RankFailure, run_ranks, whole_state


def train_strategy(
    directory: str,
    *,
    rank: int = 0,
    world_size: int = 1,
    port: int = 0,
    config: dict[str, object] | None = None,
    dtype: str = "float32",
    rows: int = 2,
    rate: float = 1e-3,
) -> Fsdp2TrainStrategy:
    context = StrategyContext(
        strategy_name="fsdp2_train",
        strategy_config=config or {},
        model_args=ModelSettings(model_name_or_path=directory, dtype=dtype),
        training_args=TrainSettings(
            learning_rate=rate, max_grad_norm=1.0, lr_scheduler_type="cosine", warmup_steps=2, max_steps=10
        ),
        batching=BatchSettings(train_rows=rows),
        rank=rank,
        world_size=world_size,
        master_port=port,
        cluster_name="actor",
    )
    strategy = build_strategy(context)
    assert isinstance(strategy, Fsdp2TrainStrategy)
    strategy.initialize()
    return strategy


def rows(step: int, count: int) -> DataProto:
    draws = torch.Generator().manual_seed(50 + step)
    ids = torch.randint(1, 48, (count, 9), generator=draws)
    lengths = torch.randint(3, 10, (count, 1), generator=draws)
    mask = (torch.arange(9)[None] < lengths).long()
    response = mask * (torch.arange(9)[None] >= 2)
    return DataProto.from_single_dict(
        {"input_ids": ids * mask, "attention_mask": mask, "response_mask": response},
        {"loss_mask_keys": ["response_mask"]},
    )


def column(batch: DataProto, name: str) -> Tensor:
    assert batch.batch is not None
    value = batch.batch[name]
    assert isinstance(value, Tensor)
    return value


def summed(strategy: Fsdp2TrainStrategy, data: DataProto, output: Tensor) -> Tensor:
    lp = strategy.op_compute_log_probs(output, column(data, "input_ids"), column(data, "attention_mask"))
    return -(lp * column(data, "response_mask")[:, 1:]).sum()


def response_loss(strategy: Fsdp2TrainStrategy) -> LossFunc:
    return lambda data, output: LossSum(summed(strategy, data, output), "response_mask")


def number(metrics: dict[str, object], name: str) -> float:
    metric = metrics[name]
    assert isinstance(metric, Metric)
    return float(metric)


def state_of(strategy: Fsdp2TrainStrategy) -> dict[str, Tensor]:
    return whole_state(strategy)


def local_parameters(strategy: Fsdp2TrainStrategy) -> list[Tensor]:
    parameters = strategy.unwrap_model().parameters()
    return [p.to_local() if isinstance(p, DTensor) else p for p in parameters]


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def sums_and_shares(
    rank: int, world_size: int, port: int, directory: str, sizes: list[list[int]]
) -> list[object]:
    """Trains one step on the same 7 rows, dealt out differently; returns loss and state of each."""
    whole = rows(0, 7)
    found: list[object] = []
    for dealt in sizes:
        strategy = train_strategy(directory, rank=rank, world_size=world_size, port=port)
        start = sum(dealt[:rank])
        part = whole.slice(start, start + dealt[rank])
        metrics = strategy.train_step(part, response_loss(strategy))
        found.append((number(metrics, "actor/loss"), number(metrics, "actor/grad_norm"), state_of(strategy)))
    return found


def test_uneven_and_empty_ranks_give_the_gradient_of_the_whole_batch(tiny: Path) -> None:
    outcomes = run_ranks(sums_and_shares, 2, str(tiny), [[4, 3], [6, 1], [7, 0]])
    loss, norm, state = outcomes[0][0]
    for outcome in outcomes:
        for other_loss, other_norm, other in outcome:
            assert abs(other_loss - loss) < 1e-6
            assert abs(other_norm - norm) < 1e-5
            for name, value in state.items():
                assert (other[name] - value).abs().max() < 2e-5, name


def plain_pair(
    strategy: Fsdp2TrainStrategy, data: DataProto, output: Tensor
) -> tuple[Tensor, dict[str, object]]:
    loss = summed(strategy, data, output) / data.meta_info["batch_num_tokens"]["response_mask"]
    return loss, {"same": loss, "rows@sum": len(data), "width@max": column(data, "input_ids").shape[1]}


def test_the_plain_pair_and_the_declared_sum_mean_the_same(tiny: Path) -> None:
    results = []
    for plain in (True, False):
        strategy = train_strategy(str(tiny), rows=2)

        def loss(data: DataProto, output: Tensor) -> tuple[Tensor, dict[str, object]] | LossSum:
            if plain:  # noqa: B023  # called at once
                return plain_pair(strategy, data, output)  # noqa: B023  # called at once
            return LossSum(summed(strategy, data, output), "response_mask")  # noqa: B023  # called at once

        metrics = strategy.train_step(rows(0, 5), loss)
        results.append((number(metrics, "actor/loss"), state_of(strategy)))
    assert results[0][0] == pytest.approx(results[1][0], abs=1e-6)
    for name, value in results[0][1].items():
        assert (value - results[1][1][name]).abs().max() < 2e-5


def test_metrics_are_joined_once_and_never_share_memory_with_the_loss(tiny: Path) -> None:
    strategy = train_strategy(str(tiny), rows=2)
    metrics = strategy.train_step(rows(0, 5), lambda data, output: plain_pair(strategy, data, output))
    assert number(metrics, "rows@sum") == 5
    assert number(metrics, "width@max") == 9
    # Shares of 2, 2 and 1 rows: their mean, weighted by rows, as they were returned.
    one = train_strategy(str(tiny), rows=5)
    whole = one.train_step(rows(0, 5), lambda data, output: plain_pair(one, data, output))
    assert number(whole, "same") == pytest.approx(number(whole, "actor/loss"), abs=1e-7)
    assert number(metrics, "same") < number(whole, "same")


def test_a_declared_mean_weighs_by_rows(tiny: Path) -> None:
    losses = []
    for size in (1, 2, 5):
        strategy = train_strategy(str(tiny), rows=size)

        def mean(data: DataProto, output: Tensor) -> LossMean:
            return LossMean(summed(strategy, data, output) / len(data))  # noqa: B023  # called at once

        losses.append(number(strategy.train_step(rows(0, 5), mean), "actor/loss"))
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)
    assert losses[2] == pytest.approx(losses[0], abs=1e-5)


def test_a_mask_that_is_not_there_is_named(tiny: Path) -> None:
    strategy = train_strategy(str(tiny))
    batch = rows(0, 2)
    batch.meta_info["loss_mask_keys"] = ["answer_mask"]
    with pytest.raises(BatchError, match="names 'answer_mask', which the batch does not have"):
        strategy.train_step(batch, lambda data, output: LossMean(output.sum()))


def test_half_precision_compute_keeps_float32_masters_that_move(tiny: Path) -> None:
    strategy = train_strategy(str(tiny), dtype="bf16", rate=1e-6 * 2)  # warm-up halves the first step
    dtypes: list[torch.dtype] = []
    before = state_of(strategy)

    def loss(data: DataProto, output: Tensor) -> LossSum:
        dtypes.append(output.dtype)
        return LossSum(summed(strategy, data, output), "response_mask")

    strategy.train_step(rows(0, 4), loss)
    after = state_of(strategy)
    assert set(dtypes) == {torch.bfloat16}
    assert {value.dtype for value in after.values()} == {torch.float32}
    # Ids that do not occur have no gradient in the table of embeddings.
    names = [name for name in after if "embed_tokens" not in name]
    moved = sum(int((after[n] != before[n]).sum()) for n in names) / sum(after[n].numel() for n in names)
    assert moved > 0.99


def test_the_state_survives_offloading_of_each_kind_and_of_all(tiny: Path) -> None:
    strategy = train_strategy(str(tiny))

    def step(index: int) -> float:
        return number(
            strategy.train_step(
                rows(index, 4), lambda data, output: LossSum(summed(strategy, data, output), "response_mask")
            ),
            "actor/loss",
        )

    step(0)
    other = train_strategy(str(tiny))
    other.train_step(rows(0, 4), lambda data, output: LossSum(summed(other, data, output), "response_mask"))
    for include in (["model_params"], ["optimizer_states"], ["gradients"], None):
        before = state_of(strategy)
        strategy.offload_states(include=include)
        if include is None:
            sizes = [p.untyped_storage().nbytes() for p in local_parameters(strategy)]
            assert sum(sizes) == 0
        strategy.load_states(include=include)
        assert same(state_of(strategy), before)
    strategy.offload_states()
    assert step(1) == number(
        other.train_step(
            rows(1, 4), lambda data, output: LossSum(summed(other, data, output), "response_mask")
        ),
        "actor/loss",
    )
    assert same(state_of(strategy), state_of(other))


def dropout_step(strategy: Fsdp2TrainStrategy, index: int) -> float:
    """A step whose loss draws random numbers, so that resuming has to restore them."""

    def loss(data: DataProto, output: Tensor) -> LossSum:
        keep = torch.nn.functional.dropout(output, 0.2)
        return LossSum(summed(strategy, data, keep), "response_mask")

    return number(strategy.train_step(rows(index, 4), loss), "actor/loss")


def straight_and_saved(rank: int, world_size: int, port: int, directory: str, place: str) -> list[object]:
    torch.manual_seed(100 + rank)
    strategy = train_strategy(directory, rank=rank, world_size=world_size, port=port)
    losses = [dropout_step(strategy, index) for index in range(2)]
    strategy.save_checkpoint(place, global_step=2)
    losses += [dropout_step(strategy, index) for index in range(2, 4)]
    return [losses, state_of(strategy)]


def resumed(rank: int, world_size: int, port: int, directory: str, place: str) -> list[object]:
    strategy = train_strategy(directory, rank=rank, world_size=world_size, port=port)
    strategy.load_checkpoint(place)
    losses = [dropout_step(strategy, index) for index in range(2, 4)]
    return [losses, state_of(strategy), strategy.steps]


def loaded_state(rank: int, world_size: int, port: int, directory: str, place: str) -> list[object]:
    strategy = train_strategy(directory, rank=rank, world_size=world_size, port=port)
    strategy.load_checkpoint(place)
    moments = [state["exp_avg"] for state in strategy.optimizer.state.values()]
    return [state_of(strategy), [m.full_tensor() if hasattr(m, "full_tensor") else m for m in moments]]


def test_a_resumed_run_equals_one_that_never_stopped_bit_for_bit(tiny: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "step-2")
    straight = run_ranks(straight_and_saved, 2, str(tiny), place)
    again = run_ranks(resumed, 2, str(tiny), place)
    for (losses, state), (later, state_again, steps) in zip(straight, again, strict=True):
        assert later == losses[2:]
        assert same(state, state_again)
        assert steps == 4

    # The same checkpoint on one rank: same model, same moments.
    [[alone, moments]] = run_ranks(loaded_state, 1, str(tiny), place)
    [[pair, pair_moments], _] = run_ranks(loaded_state, 2, str(tiny), place)
    assert same(alone, pair)
    assert all(torch.equal(a, b) for a, b in zip(moments, pair_moments, strict=True))

    # And as a model of its own.
    exported = transformers.AutoModelForCausalLM.from_pretrained(place)
    assert same(dict(exported.state_dict()), alone)
    assert json.loads((Path(place) / "COMPLETE.json").read_text())["world_size"] == 2


def test_a_missing_or_unfinished_checkpoint_raises(tiny: Path, tmp_path: Path) -> None:
    strategy = train_strategy(str(tiny))
    with pytest.raises(CheckpointError, match="does not exist"):
        strategy.load_checkpoint(str(tmp_path / "nowhere"))
    place = tmp_path / "step-0"
    strategy.save_checkpoint(str(place), global_step=0)
    (place / "COMPLETE.json").unlink()
    with pytest.raises(CheckpointError, match="saving never finished"):
        strategy.load_checkpoint(str(place))
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        strategy.save_checkpoint(str(place), global_step=1)


def test_a_crash_while_saving_leaves_the_checkpoint_before_it(tiny: Path, tmp_path: Path) -> None:
    strategy = train_strategy(str(tiny))
    place = tmp_path / "last"
    strategy.save_checkpoint(str(place), global_step=0)
    before = state_of(strategy)
    dropout_step(strategy, 0)
    # What a crash in the middle of the next save leaves behind.
    shutil.copytree(place, tmp_path / "last.staging")
    (tmp_path / "last.staging" / "COMPLETE.json").unlink()
    strategy.load_checkpoint(str(place))
    assert same(state_of(strategy), before)
    assert strategy.steps == 0
    strategy.save_checkpoint(str(place), global_step=1)
    assert json.loads((place / "COMPLETE.json").read_text())["global_step"] == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["last"]


def test_a_gradient_that_is_not_finite_changes_nothing(tiny: Path) -> None:
    strategy = train_strategy(str(tiny))
    before = state_of(strategy)
    metrics = strategy.train_step(
        rows(0, 2),
        lambda data, output: LossSum(summed(strategy, data, output) * float("inf"), "response_mask"),
    )
    assert number(metrics, "actor/skipped_steps") == 1
    assert same(state_of(strategy), before)
    assert strategy.steps == 0
    dropout_step(strategy, 1)
    assert strategy.steps == 1


def test_a_batch_in_which_nothing_counts_changes_nothing(tiny: Path) -> None:
    strategy = train_strategy(str(tiny))
    before = state_of(strategy)
    batch = rows(0, 4)
    column(batch, "response_mask").zero_()
    metrics = strategy.train_step(batch, response_loss(strategy))
    assert number(metrics, "actor/loss") == 0
    assert number(metrics, "actor/grad_norm") == 0
    assert same(state_of(strategy), before)


def test_sizes_that_do_not_divide_are_refused() -> None:
    for config, message in (
        ({"fsdp_size": 3}, "fsdp_size 3 does not divide the 4 workers"),
        ({"ulysses_size": 3}, "ulysses_size 3 does not divide the 4 workers"),
        ({"fsdp_sise": 3}, "did you mean 'fsdp_size'"),
        ({"digest": "some"}, r"must be one of \['sampled', 'full'\]"),
    ):
        with pytest.raises(StrategyConfigError, match=message):
            build_strategy(StrategyContext(strategy_name="fsdp2_train", strategy_config=config, world_size=4))


def heads_do_not_divide(rank: int, world_size: int, port: int, directory: str) -> None:
    config: dict[str, object] = {"ulysses_size": 3}
    train_strategy(directory, rank=rank, world_size=world_size, port=port, config=config)


def test_a_sequence_split_that_does_not_divide_the_heads_is_refused(tiny: Path) -> None:
    with pytest.raises(RankFailure, match="ulysses_size 3 must divide the 4 attention heads"):
        run_ranks(heads_do_not_divide, 3, str(tiny))
