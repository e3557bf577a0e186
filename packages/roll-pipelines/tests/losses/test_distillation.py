"""Distillation losses against hand-computed numbers, closed forms and laws."""

import math
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from roll_pipelines.losses.distillation import (
    DistillOptions,
    Kind,
    comparable,
    kept_log_probs,
    position_divergence,
    token_divergence,
)

KINDS: tuple[Kind, ...] = ("forward_kl", "reverse_kl", "skewed_forward_kl", "skewed_reverse_kl", "js")
P = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
Q = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)


def kl(p: Tensor, q: Tensor) -> float:
    return float((p * (p / q).log()).sum())


def between(kind: Kind, **options: float) -> float:
    return float(token_divergence(Q.log(), P.log(), DistillOptions(kind=kind, **options)))  # type: ignore[arg-type]  # by name


def random_logits(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2


def test_forward_kl_goes_from_the_teacher_to_the_student_and_reverse_kl_back() -> None:
    assert between("forward_kl") == pytest.approx(
        0.5 * math.log(2.5) + 0.3 * math.log(1.5) - 0.2 * math.log(3.0)
    )
    assert between("reverse_kl") == pytest.approx(kl(Q, P))


def test_skewed_divergences_mix_a_share_of_the_first_distribution_into_the_second() -> None:
    assert between("skewed_forward_kl", skew=0.25) == pytest.approx(kl(P, 0.25 * P + 0.75 * Q))
    assert between("skewed_reverse_kl", skew=0.25) == pytest.approx(kl(Q, 0.25 * Q + 0.75 * P))


def test_jensen_shannon_weighs_both_divergences_from_the_mixture() -> None:
    middle = 0.25 * P + 0.75 * Q
    assert between("js", js_weight=0.25) == pytest.approx(0.25 * kl(P, middle) + 0.75 * kl(Q, middle))
    symmetric = token_divergence(P.log(), Q.log(), DistillOptions(kind="js"))
    assert between("js") == pytest.approx(float(symmetric))
    assert between("js") <= math.log(2.0)


def test_without_skew_the_skewed_divergences_are_the_plain_ones() -> None:
    assert between("skewed_forward_kl", skew=0.0) == pytest.approx(between("forward_kl"))
    assert between("skewed_reverse_kl", skew=0.0) == pytest.approx(between("reverse_kl"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_divergence_is_zero_with_zero_gradient_for_a_student_that_equals_its_teacher(
    kind: Kind,
) -> None:
    student = random_logits(4, 9).requires_grad_()
    logp = kept_log_probs(student, None)
    loss = token_divergence(logp, logp.detach(), DistillOptions(kind=kind)).sum()
    (grad,) = torch.autograd.grad(loss, student)
    assert float(loss.detach()) == pytest.approx(0.0, abs=1e-12)
    assert float(grad.abs().max()) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("topk", [0, 3])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_gradient_of_every_divergence_is_the_slope_of_its_value(
    kind: Kind, topk: int, temperature: float
) -> None:
    teacher = random_logits(2, 7, seed=1)
    indices = teacher.topk(topk, -1).indices if topk else None
    p = comparable(kept_log_probs(teacher, indices, temperature=temperature), whole=indices is None)
    options = DistillOptions(kind=kind, temperature=temperature)

    def total(logits: Tensor) -> Tensor:
        q = comparable(kept_log_probs(logits, indices, temperature=temperature), whole=indices is None)
        return token_divergence(q, p, options).sum()

    assert torch.autograd.gradcheck(total, (random_logits(2, 7, seed=2).requires_grad_(),))


def test_forward_kl_at_a_temperature_has_the_gradient_t_times_the_difference_of_probabilities() -> None:
    # d/dz of T^2 KL(p, softmax(z / T)) is T (q - p): the size of the gradient does not fall with T squared.
    student, teacher, t = random_logits(5, seed=3).requires_grad_(), random_logits(5, seed=4), 4.0
    options = DistillOptions(kind="forward_kl", temperature=t)
    loss = token_divergence(
        kept_log_probs(student, None, temperature=t), kept_log_probs(teacher, None, temperature=t), options
    )
    (grad,) = torch.autograd.grad(loss, student)
    wanted = t * (torch.softmax(student.detach() / t, -1) - torch.softmax(teacher / t, -1))
    torch.testing.assert_close(grad, wanted)


def test_kept_log_probs_are_those_of_the_whole_vocabulary() -> None:
    logits, indices = random_logits(2, 3, 11), torch.tensor([0, 7, 10]).expand(2, 3, 3)
    wanted = torch.log_softmax(logits / 1.5, -1).gather(-1, indices)
    torch.testing.assert_close(kept_log_probs(logits, indices, temperature=1.5), wanted)


def test_the_bucket_holds_exactly_the_mass_that_was_left_out() -> None:
    logits = random_logits(4, 30)
    top = logits.topk(5, -1).indices
    joined = comparable(kept_log_probs(logits, top), whole=False)
    rest = torch.softmax(logits, -1).scatter(-1, top, 0.0).sum(-1)
    torch.testing.assert_close(joined[..., -1].exp(), rest)
    torch.testing.assert_close(joined.exp().sum(-1), torch.ones(4, dtype=torch.float64))


def test_mass_outside_the_kept_entries_is_seen_by_the_bucket_and_not_by_renormalising() -> None:
    teacher = torch.tensor([0.6, 0.3, 0.1, 0.0 + 1e-9]).log()
    leaking = torch.tensor([0.06, 0.03, 0.01, 0.9]).log()
    kept = torch.tensor([0, 1, 2])
    p, q = kept_log_probs(teacher, kept), kept_log_probs(leaking, kept)
    options = DistillOptions()
    seen = token_divergence(comparable(q, whole=False), comparable(p, whole=False), options)
    unseen = token_divergence(
        comparable(q, whole=False, tail="renormalise"),
        comparable(p, whole=False, tail="renormalise"),
        options,
    )
    assert float(seen) == pytest.approx(math.log(10.0), rel=1e-5)
    assert float(unseen) == pytest.approx(0.0, abs=1e-6)


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), topk=st.integers(1, 12))
def test_the_bucketed_divergence_is_a_lower_bound_that_is_reached_when_everything_is_kept(
    seed: int, topk: int
) -> None:
    student, teacher = random_logits(12, seed=seed), random_logits(12, seed=seed + 1)
    indices = teacher.topk(topk, -1).indices
    options = DistillOptions()
    full = float(token_divergence(kept_log_probs(student, None), kept_log_probs(teacher, None), options))
    bound = float(
        token_divergence(
            comparable(kept_log_probs(student, indices), whole=False),
            comparable(kept_log_probs(teacher, indices), whole=False),
            options,
        )
    )
    assert -1e-9 <= bound <= full + 1e-9
    if topk >= 11:
        assert bound == pytest.approx(full, abs=1e-6)


def test_a_teacher_that_is_certain_gives_finite_losses_and_gradients_in_float32() -> None:
    teacher = torch.tensor([[60.0, 0.0, 0.0, 0.0]])
    student = torch.zeros(1, 4, requires_grad=True)
    top = teacher.topk(2, -1).indices
    for kind in KINDS:
        p = comparable(kept_log_probs(teacher, top), whole=False)
        loss = token_divergence(
            comparable(kept_log_probs(student, top), whole=False), p, DistillOptions(kind=kind)
        ).sum()
        (grad,) = torch.autograd.grad(loss, student)
        assert torch.isfinite(loss)
        assert torch.isfinite(grad).all()


def test_a_teacher_that_forbids_entries_is_followed_without_nan() -> None:
    teacher = torch.tensor([[1.0, 2.0, float("-inf")]])
    student = torch.zeros(1, 3, requires_grad=True)
    loss = token_divergence(
        kept_log_probs(student, None), kept_log_probs(teacher, None), DistillOptions()
    ).sum()
    (grad,) = torch.autograd.grad(loss, student)
    assert torch.isfinite(loss)
    assert float(grad[0, 2]) > 0  # its probability falls


def test_the_first_answer_token_is_distilled_and_the_position_after_the_last_one_is_not() -> None:
    # Prompt of two tokens, answer of two: positions 1 and 2 predict it; labels are shifted already.
    labels = torch.tensor([[-100, 7, 8, -100]])
    teacher = kept_log_probs(random_logits(1, 4, 9, seed=5), None)
    student = random_logits(1, 4, 9, seed=6).requires_grad_()
    loss = position_divergence(
        kept_log_probs(student, None), teacher, labels, DistillOptions(), whole=True
    ).sum()
    (grad,) = torch.autograd.grad(loss, student)
    assert (grad.abs().sum(-1) > 0).tolist() == [[False, True, True, False]]
    wanted = sum(kl(teacher[0, t].exp(), torch.softmax(student.detach()[0, t], -1)) for t in (1, 2))
    assert float(loss.detach()) == pytest.approx(wanted)


def test_a_batch_without_a_label_costs_nothing() -> None:
    labels = torch.full((2, 3), -100)
    student = random_logits(2, 3, 5).requires_grad_()
    logp = kept_log_probs(student, None)
    loss = position_divergence(logp, logp.detach(), labels, DistillOptions(), whole=True).sum()
    (grad,) = torch.autograd.grad(loss, student)
    assert float(loss.detach()) == 0.0
    assert not grad.any()


@pytest.mark.filterwarnings("ignore:You are importing from 'trl.experimental'")
@pytest.mark.parametrize(
    ("kind", "weight", "beta"), [("forward_kl", 0.5, 0), ("reverse_kl", 0.5, 1), ("js", 0.3, 0.3)]
)
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_the_divergences_have_trl_s_loss_and_gradient(
    kind: Kind, weight: float, beta: float, temperature: float
) -> None:
    trl: Any = import_module("trl.experimental.gkd")  # Any: TRL has no types
    teacher, labels = random_logits(2, 4, 9, seed=7), torch.tensor([[-100, 7, 8, -100], [3, 1, 0, -100]])
    theirs_in, ours_in = (random_logits(2, 4, 9, seed=8).requires_grad_() for _ in range(2))
    theirs = trl.GKDTrainer.generalized_jsd_loss(
        theirs_in, teacher, labels=labels, beta=beta, temperature=temperature, reduction="sum"
    )
    options = DistillOptions(kind=kind, js_weight=weight, temperature=temperature)
    whole = {"temperature": temperature}
    mine = position_divergence(
        kept_log_probs(ours_in, None, **whole),
        kept_log_probs(teacher, None, **whole),
        labels,
        options,
        whole=True,
    ).sum()
    # TRL leaves out the square of the temperature.
    square = temperature**2
    assert float(mine.detach()) == pytest.approx(square * float(theirs.detach()), abs=1e-10)
    (mine_grad,), (their_grad,) = torch.autograd.grad(mine, ours_in), torch.autograd.grad(theirs, theirs_in)
    torch.testing.assert_close(mine_grad, square * their_grad, atol=1e-10, rtol=0)
