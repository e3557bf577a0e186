"""The policy losses against hand-computed numbers and a plain loop."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_pipelines.losses.policy import (
    AGGREGATIONS,
    Aggregation,
    aggregate,
    clipped_tokens,
    importance_ratio,
    ppo_clip_loss,
)


def by_hand(
    log_prob: float, old: float, advantage: float, low: float, high: float, dual: float | None
) -> float:
    """One token, written with Python's own numbers."""
    ratio = math.exp(log_prob - old)
    surrogate = min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)
    if dual is not None and advantage < 0:
        surrogate = max(surrogate, dual * advantage)
    return -surrogate


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.0, 2.0, -2.0),
        (1.5, 2.0, -2.4),  # clipped at 1.2
        (0.5, 2.0, -1.0),  # the smaller one is not the clipped one
        (0.5, -2.0, 1.6),  # clipped at 0.8
        (1.5, -2.0, 3.0),
        (10.0, -2.0, 20.0),
    ],
)
def test_the_clipped_loss_has_the_value_computed_by_hand(
    ratio: float, advantage: float, expected: float
) -> None:
    loss = ppo_clip_loss(torch.tensor([[math.log(ratio)]]), torch.zeros(1, 1), torch.tensor([[advantage]]))
    torch.testing.assert_close(loss, torch.tensor([[expected]]))


def test_dual_clip_bounds_the_loss_of_a_bad_token_only() -> None:
    log_probs = torch.tensor([[math.log(10.0), math.log(10.0)]])
    loss = ppo_clip_loss(log_probs, torch.zeros(1, 2), torch.tensor([[-2.0, 2.0]]), dual_clip=3.0)
    torch.testing.assert_close(loss, torch.tensor([[6.0, -2.4]]))


def test_dual_clip_of_one_or_less_is_refused() -> None:
    with pytest.raises(ValueError, match=r"above 1, not 1\.0; try 3\.0"):
        ppo_clip_loss(torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1, 1), dual_clip=1.0)


@given(
    numbers=st.lists(
        st.tuples(st.floats(-5, 0), st.floats(-5, 0), st.floats(-3, 3)), min_size=1, max_size=12
    ),
    low=st.floats(0, 0.9),
    high=st.floats(0, 3),
    dual=st.none() | st.floats(1.1, 5),
)
def test_the_loss_equals_a_plain_loop_for_any_numbers(
    numbers: list[tuple[float, float, float]], low: float, high: float, dual: float | None
) -> None:
    log_probs, old, advantages = (torch.tensor([c], dtype=torch.float64) for c in zip(*numbers, strict=True))
    loss = ppo_clip_loss(log_probs, old, advantages, clip_low=low, clip_high=high, dual_clip=dual)
    expected = [by_hand(*row, low, high, dual) for row in numbers]
    torch.testing.assert_close(loss, torch.tensor([expected], dtype=torch.float64))


@given(
    st.lists(
        st.tuples(st.floats(-2, 0), st.floats(-2, 0), st.sampled_from([-1.0, 1.0])), min_size=1, max_size=8
    )
)
def test_the_gradient_is_zero_exactly_where_a_token_is_clipped(
    numbers: list[tuple[float, float, float]],
) -> None:
    log_probs, old, advantages = (torch.tensor([c], dtype=torch.float64) for c in zip(*numbers, strict=True))
    log_probs.requires_grad_()
    ppo_clip_loss(log_probs, old, advantages).sum().backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    assert log_probs.grad is not None
    clipped = clipped_tokens(log_probs.detach(), old, advantages, clip_low=0.2, clip_high=0.2)
    assert ((log_probs.grad == 0) == clipped).all()


def test_the_ratio_stays_finite_for_log_probabilities_far_apart() -> None:
    ratio = importance_ratio(torch.tensor([0.0, -1000.0]), torch.tensor([-1000.0, 0.0]))
    assert torch.isfinite(ratio).all()


def test_each_aggregation_has_the_value_computed_by_hand() -> None:
    values = torch.tensor([[1.0, 2.0, 9.0], [4.0, 9.0, 9.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    found = {mode: aggregate(values, mask, mode) for mode in AGGREGATIONS}
    assert {mode: (float(s.value), s.denominator) for mode, s in found.items()} == {
        "token-mean": (7.0, "response_mask"),
        "seq-mean-token-mean": (5.5, "samples"),
        "seq-mean-token-sum": (7.0, "samples"),
    }


@settings(deadline=None)
@given(mode=st.sampled_from(AGGREGATIONS), cut=st.integers(0, 6), seed=st.integers(0, 1000))
def test_sums_over_parts_add_up_to_the_sum_over_the_whole(mode: Aggregation, cut: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    mask = torch.rand(6, 5, generator=generator) < 0.5
    whole = aggregate(values, mask, mode).value
    parts = [aggregate(values[part], mask[part], mode).value for part in (slice(0, cut), slice(cut, 6))]
    torch.testing.assert_close(parts[0] + parts[1], whole)


@pytest.mark.parametrize("mode", AGGREGATIONS)
def test_what_is_masked_changes_neither_value_nor_gradient(mode: Aggregation) -> None:
    values = torch.tensor([[1.0, float("inf")], [float("nan"), float("-inf")]], requires_grad=True)
    mask = torch.tensor([[1, 0], [0, 0]])
    summed = aggregate(values, mask, mode)
    summed.value.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    assert summed.value.item() == 1.0
    assert values.grad is not None
    assert values.grad.tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_an_unknown_aggregation_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="unknown loss aggregation 'mean'; choose from token-mean"):
        aggregate(torch.zeros(1, 1), torch.ones(1, 1), "mean")  # type: ignore[arg-type]  # the point of the test
