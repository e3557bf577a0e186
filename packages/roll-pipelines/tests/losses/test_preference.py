"""Preference losses against hand-computed numbers and closed forms."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from roll_pipelines.losses.preference import (
    PairScores,
    PreferenceLoss,
    PreferenceOptions,
    margin,
    preference_loss,
    preference_losses,
    register_preference_loss,
    sequence_log_probs,
)


def scores(
    chosen: list[float],
    rejected: list[float],
    ref_chosen: list[float],
    ref_rejected: list[float],
    **more: object,
) -> PairScores:
    """Returns the scores of pairs whose answers all have two tokens, unless told otherwise."""
    pairs = len(chosen)
    columns = {
        "chosen": torch.tensor(chosen, dtype=torch.float64),
        "rejected": torch.tensor(rejected, dtype=torch.float64),
        "ref_chosen": torch.tensor(ref_chosen, dtype=torch.float64),
        "ref_rejected": torch.tensor(ref_rejected, dtype=torch.float64),
        "chosen_tokens": torch.full((pairs,), 2),
        "rejected_tokens": torch.full((pairs,), 2),
        "chosen_present": torch.ones(pairs, dtype=torch.bool),
        "rejected_present": torch.ones(pairs, dtype=torch.bool),
    }
    return PairScores(**{**columns, **more})  # type: ignore[arg-type]  # columns by name


def value(name: str, pair: PairScores, options: PreferenceOptions) -> list[float]:
    return [float(x) for x in preference_loss(name).function(pair, options)]


ONE = scores([-2.0], [-3.0], [-2.5], [-2.0])
"""One pair with the margin (-2 + 2.5) - (-3 + 2) = 1.5."""


def test_the_margin_is_the_difference_of_the_two_log_ratios() -> None:
    assert margin(ONE).tolist() == [1.5]


def test_the_sigmoid_loss_is_minus_the_log_sigmoid_of_beta_times_the_margin() -> None:
    assert value("sigmoid", ONE, PreferenceOptions(beta=0.5)) == pytest.approx([math.log1p(math.exp(-0.75))])


def test_a_policy_that_equals_its_reference_costs_log_two_whatever_beta_and_smoothing() -> None:
    same = scores([-2.0, -7.0], [-3.0, -1.0], [-2.0, -7.0], [-3.0, -1.0])
    options = PreferenceOptions(beta=0.3, label_smoothing=0.2)
    assert value("sigmoid", same, options) == pytest.approx([math.log(2.0)] * 2)


def test_label_smoothing_weighs_in_the_loss_of_the_opposite_order() -> None:
    kept, flipped = math.log1p(math.exp(-0.75)), math.log1p(math.exp(0.75))
    options = PreferenceOptions(beta=0.5, label_smoothing=0.1)
    assert value("sigmoid", ONE, options) == pytest.approx([0.9 * kept + 0.1 * flipped])


def test_the_smoothed_loss_is_least_where_the_policy_believes_the_smoothed_label() -> None:
    delta = torch.tensor([math.log(0.8 / 0.2)], dtype=torch.float64, requires_grad=True)
    pair = replace(scores([0.0], [0.0], [0.0], [0.0]), chosen=delta)
    preference_loss("sigmoid").function(
        pair, PreferenceOptions(beta=1.0, label_smoothing=0.2)
    ).sum().backward()  # type: ignore[no-untyped-call]  # torch
    assert delta.grad is not None
    assert abs(float(delta.grad)) < 1e-12


def test_ipo_is_zero_exactly_where_the_margin_is_one_over_two_beta() -> None:
    assert value("ipo", ONE, PreferenceOptions(beta=1.0 / 3.0)) == pytest.approx([0.0])
    assert value("ipo", ONE, PreferenceOptions(beta=0.25)) == pytest.approx([(1.5 - 2.0) ** 2])


def test_ipo_per_token_divides_each_log_ratio_by_its_own_length() -> None:
    lengths = {"chosen_tokens": torch.tensor([2]), "rejected_tokens": torch.tensor([4])}
    pair = scores([-2.0], [-3.0], [-2.5], [-2.0], **lengths)
    options = PreferenceOptions(beta=0.5, ipo_per_token=True)
    assert value("ipo", pair, options) == pytest.approx([(0.5 / 2 + 1.0 / 4 - 1.0) ** 2])


def test_simpo_compares_mean_log_probabilities_and_asks_for_gamma_without_a_reference() -> None:
    lengths = {"chosen_tokens": torch.tensor([2]), "rejected_tokens": torch.tensor([4])}
    pair = scores([-2.0], [-3.0], [99.0], [-99.0], **lengths)
    logit = 2.0 * (-1.0 + 0.75) - 0.5
    options = PreferenceOptions(beta=2.0, simpo_gamma=0.5)
    assert value("simpo", pair, options) == pytest.approx([math.log1p(math.exp(-logit))])
    assert not preference_loss("simpo").needs_reference


def test_kto_measures_each_answer_against_the_estimated_divergence() -> None:
    pair = scores([-2.0], [-3.0], [-2.5], [-2.0], kl=0.25)
    options = PreferenceOptions(beta=0.5, desirable_weight=2.0, undesirable_weight=3.0)
    good = 1.0 - 1.0 / (1.0 + math.exp(-0.5 * (0.5 - 0.25)))
    bad = 1.0 - 1.0 / (1.0 + math.exp(-0.5 * (0.25 + 1.0)))
    assert value("kto", pair, options) == pytest.approx([2.0 * good + 3.0 * bad])


def test_kto_charges_nothing_for_an_answer_that_is_absent() -> None:
    absent = {"rejected_present": torch.tensor([False])}
    pair = scores([-2.0], [0.0], [-2.5], [0.0], kl=0.25, **absent)
    good = 1.0 - 1.0 / (1.0 + math.exp(-0.1 * 0.25))
    assert value("kto", pair, PreferenceOptions()) == pytest.approx([good])


@pytest.mark.parametrize("name", preference_losses())
def test_the_gradient_of_every_loss_is_the_slope_of_its_value(name: str) -> None:
    torch.manual_seed(0)
    loss, options = preference_loss(name), PreferenceOptions(beta=0.7, label_smoothing=0.1)
    policy = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    base = scores([0.0] * 3, [0.0] * 3, [0.3, -0.2, 0.1], [-0.4, 0.2, 0.0])

    def total(policy: Tensor) -> Tensor:
        fields = {
            name: getattr(base, name) for name in PairScores.__slots__ if name not in {"chosen", "rejected"}
        }
        return loss.function(PairScores(chosen=policy[0], rejected=policy[1], **fields), options).sum()

    assert torch.autograd.gradcheck(total, (policy,))


@pytest.mark.parametrize("name", preference_losses())
def test_every_loss_falls_when_the_preferred_answer_becomes_likelier_and_the_other_less(name: str) -> None:
    options = PreferenceOptions(beta=0.1)
    before, after = scores([-5.0], [-5.0], [-5.0], [-5.0]), scores([-4.0], [-6.0], [-5.0], [-5.0])
    assert value(name, after, options) < value(name, before, options)


def test_rewards_are_ordered_like_the_answers_and_differ_by_beta_times_the_margin() -> None:
    options = PreferenceOptions(beta=0.5)
    chosen, rejected = preference_loss("sigmoid").reward(ONE, options)
    assert (chosen - rejected).tolist() == pytest.approx([0.5 * 1.5])


def test_only_answer_tokens_enter_a_row_s_log_probability() -> None:
    logp = torch.tensor([[-1.0, -2.0, -4.0], [-1.0, float("nan"), -4.0]])
    mask = torch.tensor([[0, 1, 1, 0], [0, 1, 0, 1]])
    sums, tokens = sequence_log_probs(logp, mask)
    assert sums.tolist() == [-3.0, -5.0]
    assert tokens.tolist() == [2, 2]


def test_an_unknown_loss_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(ValueError, match=r"'sigmoyd'.*'sigmoid'.*register_preference_loss"):
        preference_loss("sigmoyd")


def test_a_name_cannot_be_given_to_a_second_loss() -> None:
    ours = preference_loss("sigmoid")
    assert register_preference_loss(ours) is ours
    with pytest.raises(ValueError, match="registered already"):
        register_preference_loss(
            PreferenceLoss(name="sigmoid", function=preference_loss("ipo").function, reward=ours.reward)
        )
