"""What every engine promises, as functions that take a way to make one.

Example:
    >>> from roll_strategies import StrategyContext
    >>> from roll_strategies.mock import MockTrainStrategy
    >>> def make(batching):
    ...     strategy = MockTrainStrategy(StrategyContext(strategy_name="mock_train", batching=batching))
    ...     strategy.initialize()
    ...     return strategy
    >>> check_training(make, vocab_size=64)
"""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from roll_protocol import DataProto
from roll_strategies.errors import CheckpointError
from roll_strategies.interfaces import InferenceStrategy, TrainStrategy
from roll_strategies.losses import LossSum
from roll_strategies.settings import BatchSettings
from roll_strategies.testing.transports import DirectTransport
from roll_strategies.weights.plan import Gathered, named_state
from roll_strategies.weights.sender import WeightSender

StrategyT = TypeVar("StrategyT", bound=InferenceStrategy)
Make = Callable[[BatchSettings], StrategyT]
"""Returns a new, initialised engine of one rank; engines made by it start with the same weights."""

# B rows   S positions   P prompt positions   n answers a prompt   R response positions


def check_scoring(make: Make[InferenceStrategy], *, vocab_size: int, tolerance: float = 1e-5) -> None:
    """Asserts that scores come in input order whatever the micro-batches, and that scoring leaves its inputs
    alone.

    Args:
        make: see `Make`.
        vocab_size: ids are drawn below it.
        tolerance: largest difference between scores of the same row.
    """
    batch = _rows(vocab_size)
    before = {name: value.clone() for name, value in _columns(batch).items()}
    scores = []
    for size in (7, 3, 1):
        engine = make(BatchSettings(infer_rows=size))
        _check_rank_info(engine)
        result = engine.forward_step(batch, lambda data, out, e=engine: _score(e, data, out))  # type: ignore[misc]  # bound now
        assert result is not None, "forward_step of one rank must return its results, got None"
        order = torch.as_tensor(result["row"]).tolist()
        assert order == list(range(7)), f"forward_step must keep the order of rows, got {order}"
        scores.append(torch.as_tensor(result["log_probs"]))
        for name, value in _columns(batch).items():
            assert torch.equal(value, before[name]), f"forward_step changed the caller's column {name!r}"
    for other in scores[1:]:
        worst = float((other - scores[0]).abs().max())
        assert worst <= tolerance, f"scores depend on the size of micro-batches: they differ by {worst}"


def check_generation(make: Make[InferenceStrategy], *, vocab_size: int, tolerance: float = 1e-5) -> None:
    """Asserts the shape of answers, and that their log-probabilities are zero past the end.

    Args:
        make: see `Make`.
        vocab_size: ids are drawn below it.
        tolerance: not used by engines that do not sample.
    """
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(1, vocab_size, (3, 4), generator=draws)
    batch = DataProto.from_single_dict({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    engine = make(BatchSettings(infer_rows=2))
    config = {"max_new_tokens": 5, "num_return_sequences": 2, "temperature": 1.0}
    answers = engine.generate(batch, config)
    columns = _columns(answers)
    lengths, width = columns["response_lengths"], torch.arange(5)
    for name, dtype in (("responses", torch.int64), ("infer_logprobs", torch.float32)):
        found = columns[name]
        assert found.shape == (6, 5), (
            f"{name} of 3 prompts with 2 answers of 5 tokens must be [6, 5], not {found.shape}"
        )
        assert found.dtype == dtype, f"{name} must be {dtype}, not {found.dtype}"
    assert lengths.shape == (6,), f"response_lengths must be [6], not {lengths.shape}"
    assert bool(((lengths >= 1) & (lengths <= 5)).all()), (
        f"response_lengths must lie in 1...5, got {lengths.tolist()}"
    )
    past = width[None] >= lengths[:, None]
    assert not columns["infer_logprobs"][past].any(), "infer_logprobs must be 0 past the end of an answer"
    assert bool((columns["infer_logprobs"] <= tolerance).all()), "log-probabilities must not be above 0"
    reasons = set(answers.non_tensor_batch["finish_reasons"])
    assert reasons <= {"stop", "length", "abort"}, (
        f"finish_reasons must be stop, length or abort, got {reasons}"
    )
    endless = engine.generate(batch, config | {"eos_token_id": []})
    assert set(endless.non_tensor_batch["finish_reasons"]) == {"length"}, (
        "an empty eos_token_id must let every answer reach its longest length"
    )
    again = _columns(make(BatchSettings(infer_rows=3)).generate(batch, config))
    assert torch.equal(again["responses"], columns["responses"]), (
        "the same call on a new engine gave other answers"
    )


def check_states(make: Make[InferenceStrategy]) -> None:
    """Asserts that offloading states and loading them is a no-op, for each kind, for two and for all."""
    engine = make(BatchSettings())
    before = _weights(engine)
    kinds = ["model_params", "gradients", "optimizer_states"]
    for include in (*([kind] for kind in kinds), kinds[:2], None):
        engine.offload_states(include=include)
        engine.load_states(include=include)
        _assert_same(_weights(engine), before, f"after offload_states and load_states of {include or 'all'}")


def check_update_target(make: Make[InferenceStrategy]) -> None:
    """Asserts that a whole update arrives bit for bit and is counted, and that a foreign one changes
    nothing."""
    engine = make(BatchSettings())
    before = _weights(engine)
    draws = torch.Generator().manual_seed(1)
    sent = {
        name: torch.randn(value.shape, generator=draws).to(value.dtype)
        if value.is_floating_point()
        else value
        for name, value in before.items()
    }
    tied = {id(value): name for name, value in named_state(engine.unwrap_model()).items()}
    sent = {name: value for name, value in sent.items() if name in tied.values()}
    foreign = WeightSender(transport=DirectTransport([engine]), bucket_bytes=1024)
    try:
        foreign.send({**sent, "no.such.parameter": torch.zeros(1)}, version=1)
    except Exception:  # noqa: BLE001  # any refusal will do
        _assert_same(_weights(engine), before, "after an update that was refused")
    else:
        raise AssertionError("an update with a parameter that the model does not have must be refused")
    WeightSender(transport=DirectTransport([engine]), bucket_bytes=1024).send(sent, version=2)
    arrived = _weights(engine)
    for name, value in sent.items():
        assert torch.equal(arrived[name], value), f"parameter {name!r} did not arrive bit for bit"
    assert engine.weights_version == 2, (
        f"weights_version must be 2 after update 2, got {engine.weights_version}"
    )


def check_training(make: Make[TrainStrategy], *, vocab_size: int, tolerance: float = 2e-5) -> None:
    """Asserts one gradient whatever the micro-batches, counts of the whole batch, and metrics that stay as
    returned.

    Args:
        make: see `Make`; the learning rate must be above 0.
        vocab_size: ids are drawn below it.
        tolerance: largest difference between parameters after two steps.
    """
    batch = _rows(vocab_size)
    outcomes = []
    for size in (7, 3, 1):
        engine = make(BatchSettings(train_rows=size))
        start = _weights(engine)
        seen: list[tuple[int, Tensor, float]] = []
        for _ in range(2):
            engine.train_step(batch, lambda data, out, e=engine, s=seen: _loss(e, data, out, s))  # type: ignore[misc]  # bound now
        _check_counts(batch, seen)
        for _, value, was in seen:
            assert float(value) == was, "the strategy changed a metric that a loss function had returned"
        end = _weights(engine)
        moved = max(float((end[name] - start[name]).abs().max()) for name in end)
        assert moved > 0, "two steps of training changed no parameter"
        outcomes.append(end)
    for other in outcomes[1:]:
        for name, value in outcomes[0].items():
            worst = float((other[name] - value).abs().max())
            assert worst <= tolerance, f"{name!r} depends on the size of micro-batches: it differs by {worst}"


def check_resume(make: Make[TrainStrategy], *, vocab_size: int) -> None:
    """Asserts that two steps, saved and loaded into a new engine and followed by two, equal four; bit for
    bit.

    Args:
        make: see `Make`.
        vocab_size: ids are drawn below it.
    """
    batch = _rows(vocab_size)

    def steps(engine: TrainStrategy) -> None:
        for _ in range(2):
            engine.train_step(batch, lambda data, out: _loss(engine, data, out, []))

    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "checkpoint")
        straight = make(BatchSettings(train_rows=3))
        steps(straight)
        straight.save_checkpoint(place, 2)
        steps(straight)
        resumed = make(BatchSettings(train_rows=3))
        resumed.load_checkpoint(place)
        steps(resumed)
        _assert_same(_weights(resumed), _weights(straight), "after resuming")
        try:
            resumed.load_checkpoint(str(Path(folder) / "nowhere"))
        except CheckpointError:
            return
        raise AssertionError("load_checkpoint of a directory that does not exist must raise CheckpointError")


def whole_state(engine: InferenceStrategy) -> dict[str, Tensor]:
    """Returns copies of an engine's parameters and buffers, whole; a collective where they are sharded."""
    whole = {}
    for name, value in named_state(engine.unwrap_model()).items():
        full = value.full_tensor() if isinstance(value, Gathered) else value
        whole[name] = full.detach().clone()
    return whole


def _rows(vocab_size: int) -> DataProto:
    """Returns 7 rows of 3 to 9 tokens, padded on the right, numbered in the column `row`."""
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(1, vocab_size, (7, 9), generator=draws)
    mask = (torch.arange(9)[None] < torch.tensor([3, 9, 5, 4, 9, 7, 6])[:, None]).long()
    answer = mask * (torch.arange(9)[None] >= 2)
    return DataProto.from_single_dict(
        {"input_ids": ids * mask, "attention_mask": mask, "response_mask": answer, "row": torch.arange(7)},
        {"loss_mask_keys": ["response_mask"]},
    )


def _columns(batch: DataProto) -> dict[str, Tensor]:
    assert batch.batch is not None
    return {str(name): value for name, value in batch.batch.items() if isinstance(value, Tensor)}


def _log_probs(engine: InferenceStrategy, data: DataProto, out: Tensor) -> Tensor:
    columns = _columns(data)
    return engine.op_compute_log_probs(out, columns["input_ids"], columns["attention_mask"])


def _score(engine: InferenceStrategy, data: DataProto, out: Tensor) -> tuple[Tensor, Mapping[str, object]]:
    held = out.detach().clone()
    log_probs = _log_probs(engine, data, out)
    engine.op_compute_entropy(out, _columns(data)["attention_mask"])
    assert torch.equal(out, held), "an operation wrote to the logits"
    return log_probs.sum(), {"log_probs": log_probs, "row": _columns(data)["row"]}


def _loss(
    engine: TrainStrategy, data: DataProto, out: Tensor, seen: list[tuple[int, Tensor, float]]
) -> LossSum:
    mask = _columns(data)["response_mask"][:, 1:]
    loss = -(_log_probs(engine, data, out) * mask).sum()
    value = loss.detach()
    seen.append((int(data.meta_info["batch_num_tokens"]["response_mask"]), value, float(value)))
    return LossSum(loss, "response_mask", {"value": value})


def _check_counts(batch: DataProto, seen: list[tuple[int, Tensor, float]]) -> None:
    expected = int(_columns(batch)["response_mask"][:, 1:].sum())
    counts = {count for count, _, _ in seen}
    assert counts == {expected}, (
        f"batch_num_tokens must count the whole batch ({expected}), got {sorted(counts)}"
    )


def _check_rank_info(engine: InferenceStrategy) -> None:
    info = engine.rank_info
    product = info.dp_size * info.tp_size * info.pp_size * info.cp_size
    assert product == info.world_size, f"the sizes of {info} multiply to {product}, not to the world size"
    for name in ("dp", "tp", "pp", "cp"):
        rank, size = getattr(info, f"{name}_rank"), getattr(info, f"{name}_size")
        assert 0 <= rank < size, f"{name}_rank {rank} is not below {name}_size {size}"


def _weights(engine: InferenceStrategy) -> dict[str, Tensor]:
    return whole_state(engine)


def _assert_same(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], when: str) -> None:
    for name, value in expected.items():
        assert torch.equal(found[name], value), f"{name!r} is another {when}"


__all__ = [
    "Make",
    "check_generation",
    "check_resume",
    "check_scoring",
    "check_states",
    "check_training",
    "check_update_target",
    "whole_state",
]
