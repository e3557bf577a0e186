"""Operations on logits: right values and gradients, untouched inputs, little memory."""

import resource

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from roll_strategies.ops import (
    divergence,
    entropy,
    gather_by_teacher_indices,
    language_loss,
    log_probs,
    packed_layout,
    row_layout,
    topk_logits,
    topk_probs_and_indices,
)
from roll_strategies.testing import run_ranks


def some_logits(*, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(3, 5, 11, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


IDS = torch.randint(0, 11, (3, 5), generator=torch.Generator().manual_seed(1))
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_equal_the_plain_formula(temperature: float) -> None:
    logits = some_logits()
    plain = (logits / temperature).log_softmax(-1)[:, :-1].gather(-1, IDS[:, 1:, None]).squeeze(-1) * MASK[
        :, 1:
    ]
    torch.testing.assert_close(log_probs(logits, IDS, MASK, temperature=temperature), plain)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_entropy_equals_the_plain_formula(temperature: float) -> None:
    logits = some_logits()
    logp = (logits / temperature).log_softmax(-1)
    plain = -(logp.exp() * logp).sum(-1)[:, :-1] * MASK[:, 1:]
    torch.testing.assert_close(entropy(logits, MASK, temperature=temperature), plain)


def test_gradients_equal_finite_differences() -> None:
    logits = some_logits().requires_grad_()
    weight = torch.randn(3, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda z: (log_probs(z, IDS, MASK, temperature=0.7) * weight).sum(), logits
    )
    assert torch.autograd.gradcheck(lambda z: (entropy(z, MASK, temperature=0.7) * weight).sum(), logits)
    labels = torch.where(MASK.bool(), IDS, -100)
    assert torch.autograd.gradcheck(lambda z: language_loss(z, labels).value, logits)
    teacher = some_logits().flip(0).log_softmax(-1)
    for kind in ("forward_kl", "reverse_kl", "js"):
        assert torch.autograd.gradcheck(lambda z, kind=kind: divergence(z, teacher, kind=kind).sum(), logits)


def test_no_operation_writes_to_its_inputs() -> None:
    logits = some_logits(dtype=torch.float32).requires_grad_()
    before = logits.detach().clone()
    ids, mask = IDS.clone(), MASK.clone()
    total = log_probs(logits, ids, mask).sum() + entropy(logits, mask).sum()
    total = total + language_loss(logits, ids).value + topk_logits(logits, 3).values.sum()
    total = total + divergence(logits, before.log_softmax(-1)).sum()
    total.backward()  # type: ignore[no-untyped-call]  # torch
    assert torch.equal(logits.detach(), before)
    assert torch.equal(ids, IDS)
    assert torch.equal(mask, MASK)


def test_entropy_of_an_impossible_token_is_finite_with_its_gradient() -> None:
    logits = torch.tensor([[[0.0, 0.0, float("-inf")], [0.0, 0.0, 0.0]]], requires_grad=True)
    value = entropy(logits, torch.ones(1, 2))
    torch.testing.assert_close(value, torch.full((1, 1), 2.0).log())
    value.sum().backward()  # type: ignore[no-untyped-call]  # torch
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_half_precision_logits_are_summed_in_float32() -> None:
    logits = (some_logits() * 3).to(torch.bfloat16)
    exact = log_probs(logits.double(), IDS, MASK)
    ours = log_probs(logits, IDS, MASK)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours.double(), exact, atol=1e-5, rtol=0)


def test_labels_are_not_shifted_again_and_ignored_ones_cost_nothing() -> None:
    logits = some_logits()
    labels = torch.where(MASK.bool(), IDS, -100)
    plain = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=-100
    )
    loss = language_loss(logits, labels)
    torch.testing.assert_close(loss.value, plain)
    assert loss.denominator == "labels"


def test_top_logits_come_with_their_ids() -> None:
    logits = some_logits()
    kept = topk_logits(logits, 4)
    assert kept.indices is not None
    torch.testing.assert_close(gather_by_teacher_indices(logits, kept.indices), kept.values)
    assert topk_logits(logits, 0).indices is None
    with pytest.raises(ValueError, match=r"between 0 .* and the vocabulary size 11, got 12"):
        topk_logits(logits, 12)


def test_a_teacher_agrees_with_itself() -> None:
    logits = some_logits()
    probs, logp, ids = topk_probs_and_indices(logits, 4, temperature=2.0)
    torch.testing.assert_close(probs.sum(-1), torch.ones(3, 5))
    for kind in ("forward_kl", "reverse_kl", "js"):
        same = divergence(logits.float(), logp, teacher_indices=ids, kind=kind, temperature=2.0)
        torch.testing.assert_close(same, torch.zeros(3, 5), atol=1e-6, rtol=0)
        other = divergence(-logits.float(), logp, teacher_indices=ids, kind=kind, temperature=2.0)
        assert (other > 0.001).all()
    with pytest.raises(ValueError, match="kind of divergence must be one of"):
        divergence(logits, logp, kind="kl")


def test_a_temperature_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="temperature must be above 0, got 0"):
        log_probs(some_logits(), IDS, MASK, temperature=0)


@given(
    lengths=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6)), min_size=1, max_size=5),
)
@settings(max_examples=60, deadline=None)
def test_layouts_give_back_what_they_took(lengths: list[tuple[int, int]]) -> None:
    width = 8
    mask = torch.zeros(len(lengths), width, dtype=torch.int64)
    for row, (start, count) in enumerate(lengths):
        mask[row, start : min(width, start + count)] = 1
    values = torch.arange(1, mask.numel() + 1).reshape(mask.shape).float()
    for layout in (
        packed_layout(mask, shard=None),
        row_layout(mask, trim=True, shard=None),
        row_layout(mask, trim=False, shard=None),
    ):
        back = layout.gather(layout.local(values))
        assert torch.equal(back * mask, values * mask)
    assert packed_layout(mask, shard=None).local(values).shape == (1, int(mask.sum()))


@pytest.mark.parametrize("kind", ["packed", "trimmed"])
def test_operations_on_another_layout_equal_those_on_padded_rows(kind: str) -> None:
    logits = some_logits()
    mask = torch.tensor([[0, 1, 1, 1, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 0]])
    layout = packed_layout(mask, shard=None) if kind == "packed" else row_layout(mask, trim=True, shard=None)
    fed = layout.local(logits)
    # The first real token of a row is predicted by padding, which a packed row does not have.
    inside = (mask[:, 1:] * mask[:, :-1]).bool()
    plain = log_probs(logits, IDS, mask)
    ours = log_probs(fed, IDS, mask, layout=layout)
    torch.testing.assert_close(ours[inside], plain[inside])
    torch.testing.assert_close(entropy(fed, mask, layout=layout)[inside], entropy(logits, mask)[inside])
    labels = torch.full_like(IDS, -100)
    labels[:, :-1] = torch.where(inside, IDS[:, 1:], -100)
    torch.testing.assert_close(
        language_loss(fed, labels, layout=layout).value, language_loss(logits, labels).value
    )


def test_gradients_through_a_packed_layout_equal_those_through_padded_rows() -> None:
    mask = torch.tensor([[0, 1, 1, 1, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 0]])
    layout = packed_layout(mask, shard=None)
    inside = (mask[:, 1:] * mask[:, :-1]).bool()
    grads = []
    for packed in (False, True):
        logits = some_logits().requires_grad_()
        fed = layout.local(logits) if packed else logits
        values = log_probs(fed, IDS, mask, layout=layout if packed else None)
        values[inside].square().sum().backward()  # type: ignore[no-untyped-call]  # torch
        assert logits.grad is not None
        grads.append(logits.grad)
    torch.testing.assert_close(grads[1], grads[0])


def grown(rank: int, world_size: int, port: int, backward: bool, with_entropy: bool) -> float:
    """Returns by how many times the size of float32 logits of 150,000 ids a process grows at its peak."""

    def run(positions: int, width: int) -> float:
        logits = torch.ones(1, positions, width).requires_grad_(backward)
        ids, mask = torch.ones(1, positions, dtype=torch.int64), torch.ones(1, positions)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        total = log_probs(logits, ids, mask).sum()
        if with_entropy:
            total = total + entropy(logits, mask).sum()
        if backward:
            torch.autograd.backward(total)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        return peak * 1024 / (logits.numel() * 4)

    run(2, 8)  # loads the code, which takes memory too
    return run(200, 150_000)


def test_operations_hold_no_copy_of_the_logits_and_one_gradient_each() -> None:
    # The plain formula grows by 1, 3 and 5 times the logits.
    assert run_ranks(grown, 1, False, False)[0] < 0.25
    assert run_ranks(grown, 1, True, False)[0] < 1.25
    assert run_ranks(grown, 1, True, True)[0] < 2.25
