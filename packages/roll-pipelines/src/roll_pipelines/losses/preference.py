"""Losses that learn from preferences: pure functions of two answers' log-probabilities."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  # torch's own short name
from torch import Tensor

# N rows   S positions   P pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class PairScores:
    """What a preference loss sees of P pairs: summed log-probabilities and lengths of both answers.

    A row without a second answer (KTO) has it marked absent; its numbers are not used.
    """

    chosen: Tensor
    """[P] log-probability of the preferred answer under the policy; carries the gradient."""
    rejected: Tensor
    """[P] log-probability of the other answer under the policy."""
    ref_chosen: Tensor
    """[P] the same under the reference; zeros for a loss that needs no reference."""
    ref_rejected: Tensor
    """[P]."""
    chosen_tokens: Tensor
    """[P] number of tokens of the preferred answer."""
    rejected_tokens: Tensor
    """[P]."""
    chosen_present: Tensor
    """[P] bool; False where the row has no preferred answer."""
    rejected_present: Tensor
    """[P] bool."""
    kl: float = 0.0
    """Estimated divergence of the policy from the reference over the global batch, not negative; for KTO."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceOptions:
    """The numbers in the formulas of the preference losses."""

    beta: float = 0.1
    """Strength with which the policy is held to the reference; larger holds tighter."""
    label_smoothing: float = 0.0
    """Share of pairs whose order is believed to be wrong (conservative DPO); 0 <= share < 0.5."""
    ipo_per_token: bool = False
    """IPO compares mean instead of summed log-probabilities, so that length does not enter the margin."""
    simpo_gamma: float = 0.5
    """Margin that SimPO asks for between the two rewards."""
    desirable_weight: float = 1.0
    """KTO's weight of preferred answers."""
    undesirable_weight: float = 1.0
    """KTO's weight of the other answers."""


LossFunction = Callable[[PairScores, PreferenceOptions], Tensor]
"""Returns the loss of each pair [P]."""
RewardFunction = Callable[[PairScores, PreferenceOptions], tuple[Tensor, Tensor]]
"""Returns the implicit rewards of the preferred and of the other answer, [P] each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceLoss:
    """A loss of the registry, and what it needs."""

    name: str
    function: LossFunction
    reward: RewardFunction
    needs_reference: bool = True
    """Whether `ref_chosen` and `ref_rejected` enter the loss."""
    needs_pairs: bool = True
    """Whether every row must have both answers; the loss is then a mean over pairs, else over answers."""
    needs_kl: bool = False
    """Whether `kl` must be estimated before the step."""


def sequence_log_probs(log_probs: Tensor, response_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the summed log-probability and the length of every row's answer.

    Args:
        log_probs: [N, S-1]; column t belongs to the token at t+1.
        response_mask: [N, S]; 1 where a token is part of the answer.

    Returns:
        Sums [N] and numbers of tokens [N].

    Example:
        >>> logp, mask = torch.tensor([[-1.0, -2.0, -4.0]]), torch.tensor([[0, 0, 1, 1]])
        >>> sequence_log_probs(logp, mask)
        (tensor([-6.]), tensor([2]))
    """
    mask = response_mask[:, 1:] != 0
    return torch.where(mask, log_probs, 0.0).sum(-1), mask.sum(-1)


def margin(scores: PairScores) -> Tensor:
    """Returns how much more the policy prefers the preferred answer than the reference does, [P]."""
    return (scores.chosen - scores.ref_chosen) - (scores.rejected - scores.ref_rejected)


def sigmoid_loss(scores: PairScores, options: PreferenceOptions) -> Tensor:
    """Returns the DPO loss [P], `-(1-e) log s(b d) - e log s(-b d)`: margin d, beta b, smoothing e."""
    logits = options.beta * margin(scores)
    e = options.label_smoothing
    return -(1.0 - e) * F.logsigmoid(logits) - e * F.logsigmoid(-logits)


def ipo_loss(scores: PairScores, options: PreferenceOptions) -> Tensor:
    """Returns the IPO loss [P], `(d - 1/(2b))^2`; d is a margin of sums, or of means with `ipo_per_token`."""
    if not options.ipo_per_token:
        return (margin(scores) - 0.5 / options.beta) ** 2
    chosen = _mean(scores.chosen - scores.ref_chosen, scores.chosen_tokens)
    rejected = _mean(scores.rejected - scores.ref_rejected, scores.rejected_tokens)
    return (chosen - rejected - 0.5 / options.beta) ** 2


def simpo_loss(scores: PairScores, options: PreferenceOptions) -> Tensor:
    """Returns the SimPO loss [P], the sigmoid loss of `b (mean_chosen - mean_rejected) - gamma`."""
    chosen, rejected = simpo_reward(scores, options)
    logits = chosen - rejected - options.simpo_gamma
    e = options.label_smoothing
    return -(1.0 - e) * F.logsigmoid(logits) - e * F.logsigmoid(-logits)


def kto_loss(scores: PairScores, options: PreferenceOptions) -> Tensor:
    """Returns the KTO losses of each row's answers, summed [P].

    A preferred answer costs `w (1 - s(b (r - kl)))`, the other one `w (1 - s(b (kl - r)))`, where r is the
    log-ratio of policy and reference; an absent answer costs nothing.
    """
    chosen = scores.chosen - scores.ref_chosen - scores.kl
    rejected = scores.kl - (scores.rejected - scores.ref_rejected)
    gains = options.desirable_weight * torch.sigmoid(-options.beta * chosen)
    losses = options.undesirable_weight * torch.sigmoid(-options.beta * rejected)
    return torch.where(scores.chosen_present, gains, 0.0) + torch.where(scores.rejected_present, losses, 0.0)


def log_ratio_reward(scores: PairScores, options: PreferenceOptions) -> tuple[Tensor, Tensor]:
    """Returns `b (log policy - log reference)` of both answers, [P] each."""
    return options.beta * (scores.chosen - scores.ref_chosen), options.beta * (
        scores.rejected - scores.ref_rejected
    )


def simpo_reward(scores: PairScores, options: PreferenceOptions) -> tuple[Tensor, Tensor]:
    """Returns `b` times the mean log-probability of a token of both answers, [P] each."""
    chosen = _mean(scores.chosen, scores.chosen_tokens)
    rejected = _mean(scores.rejected, scores.rejected_tokens)
    return options.beta * chosen, options.beta * rejected


def _mean(sums: Tensor, tokens: Tensor) -> Tensor:
    return sums / tokens.clamp(min=1)


_REGISTRY: dict[str, PreferenceLoss] = {}


def register_preference_loss(loss: PreferenceLoss) -> PreferenceLoss:
    """Adds a loss under its name and returns it; a YAML may then say `loss: <name>`.

    Raises:
        ValueError: another loss has that name.
    """
    if _REGISTRY.get(loss.name, loss) != loss:
        raise ValueError(f"preference loss {loss.name!r} is registered already; choose another name")
    _REGISTRY[loss.name] = loss
    return loss


def preference_loss(name: str) -> PreferenceLoss:
    """Returns the registered loss of a name.

    Raises:
        ValueError: no loss has that name.
    """
    if name not in _REGISTRY:
        raise ValueError(
            f"no preference loss is named {name!r}; choose from {sorted(_REGISTRY)} or add yours with "
            f"register_preference_loss"
        )
    return _REGISTRY[name]


def preference_losses() -> tuple[str, ...]:
    """Returns the names of the registered losses, sorted.

    Example:
        >>> preference_losses()
        ('ipo', 'kto', 'sigmoid', 'simpo')
    """
    return tuple(sorted(_REGISTRY))


register_preference_loss(PreferenceLoss(name="sigmoid", function=sigmoid_loss, reward=log_ratio_reward))
register_preference_loss(PreferenceLoss(name="ipo", function=ipo_loss, reward=log_ratio_reward))
register_preference_loss(
    PreferenceLoss(name="simpo", function=simpo_loss, reward=simpo_reward, needs_reference=False)
)
register_preference_loss(
    PreferenceLoss(name="kto", function=kto_loss, reward=log_ratio_reward, needs_pairs=False, needs_kl=True)
)
