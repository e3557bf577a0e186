"""The estimates of a divergence against hand-computed numbers and the divergence itself."""

import math

import pytest
import torch

from roll_pipelines.losses.kl import KL_KINDS, KlKind, kl_estimate


@pytest.mark.parametrize(("kind", "expected"), [("k1", 0.5), ("k2", 0.125), ("k3", math.exp(-0.5) + 0.5 - 1)])
def test_each_estimator_has_the_value_computed_by_hand(kind: KlKind, expected: float) -> None:
    found = kl_estimate(torch.tensor([-1.0]), torch.tensor([-1.5]), kind)
    torch.testing.assert_close(found, torch.tensor([expected]))


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_unbiased_estimators_average_to_the_divergence(kind: KlKind) -> None:
    policy = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64).log()
    reference = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64).log()
    exact = (policy.exp() * (policy - reference)).sum()
    torch.testing.assert_close((policy.exp() * kl_estimate(policy, reference, kind)).sum(), exact)


@pytest.mark.parametrize("kind", KL_KINDS)
def test_equal_policies_have_no_divergence_and_no_gradient(kind: KlKind) -> None:
    log_probs = torch.tensor([-0.3, -2.0], requires_grad=True)
    value = kl_estimate(log_probs, log_probs.detach(), kind)
    assert value.tolist() == [0.0, 0.0]
    if kind != "k1":
        value.sum().backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        assert log_probs.grad is not None
        assert log_probs.grad.tolist() == [0.0, 0.0]


def test_k3_is_never_negative_and_stays_finite() -> None:
    difference = torch.linspace(-50, 50, 101)
    value = kl_estimate(torch.zeros(101), difference, "k3")
    assert (value >= 0).all()
    assert torch.isfinite(value).all()


def test_an_unknown_estimator_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="unknown KL estimator 'k4'; choose from k1, k2, k3"):
        kl_estimate(torch.zeros(1), torch.zeros(1), "k4")  # type: ignore[arg-type]  # the point of the test
