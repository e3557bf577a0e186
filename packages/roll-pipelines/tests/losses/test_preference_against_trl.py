"""Preference losses against TRL: same tensors in, same loss and gradient out."""

from collections import defaultdict
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from roll_pipelines.losses.preference import (
    PairScores,
    PreferenceOptions,
    preference_loss,
    sequence_log_probs,
)


def trl_class(
    module: str, name: str
) -> Any:  # Any: TRL has no types, and its methods get stand-ins for a trainer
    return getattr(import_module(module), name)


class TokenModel(torch.nn.Module):
    """Stands where TRL expects a causal model with a fused head: it answers with given log-probabilities."""

    def __init__(self, log_probs: Tensor, completion_mask: Tensor) -> None:
        super().__init__()
        self.is_gradient_checkpointing = False
        self.log_probs = log_probs
        self.mask = completion_mask[:, 1:]

    def forward(self, **_: object) -> SimpleNamespace:
        flat = self.log_probs * self.mask
        return SimpleNamespace(
            log_probs=flat,
            entropy=flat.detach(),
            mean_logits=flat.detach(),
            is_top1=flat > 0,
            log_sum_sq_probs=flat,
        )


def trl_trainer(model: TokenModel, reference: TokenModel, **fields: object) -> SimpleNamespace:
    """Returns an object with the attributes that TRL's loss methods read off their trainer."""
    accelerator = SimpleNamespace(
        device=torch.device("cpu"),
        gather=lambda x: x,
        gather_for_metrics=lambda x: x,
        unwrap_model=lambda m: m,
    )
    return SimpleNamespace(
        model=model, ref_model=reference, accelerator=accelerator, aux_loss_enabled=False,
        precompute_ref_logps=False, ld_alpha=None, f_divergence_type="reverse_kl", use_weighting=False,
        _metrics=defaultdict(lambda: defaultdict(list)), _tp_size=1, _total_train_tokens=0,
        args=SimpleNamespace(gradient_checkpointing_kwargs=None, gradient_checkpointing=False),
        **fields,
    )  # fmt: skip


def token_batch() -> tuple[Tensor, Tensor, Tensor]:
    """Returns log-probabilities of policy and reference [6, S-1], three pairs, and a ragged mask [6, S]."""
    generator = torch.Generator().manual_seed(3)
    policy = -torch.rand(6, 7, generator=generator, dtype=torch.float64) * 3
    reference = -torch.rand(6, 7, generator=generator, dtype=torch.float64) * 3
    lengths = torch.tensor([5, 3, 4, 2, 6, 1])
    positions = torch.arange(8)
    mask = ((positions >= 2) & (positions < 2 + lengths[:, None])).long()
    return policy, reference, mask


def ours(
    name: str, policy: Tensor, reference: Tensor, mask: Tensor, options: PreferenceOptions, kl: float = 0.0
) -> Tensor:
    """Returns our loss of a batch whose first half are the preferred answers, summed over pairs."""
    sums, tokens = sequence_log_probs(policy, mask)
    ref, _ = sequence_log_probs(reference, mask)
    present = torch.ones(3, dtype=torch.bool)
    pair = PairScores(
        chosen=sums[:3], rejected=sums[3:], ref_chosen=ref[:3], ref_rejected=ref[3:],
        chosen_tokens=tokens[:3], rejected_tokens=tokens[3:],
        chosen_present=present, rejected_present=present, kl=kl,
    )  # fmt: skip
    return preference_loss(name).function(pair, options).sum()


def gradient(loss: Tensor, leaf: Tensor) -> Tensor:
    return torch.autograd.grad(loss, leaf)[0]


@pytest.mark.parametrize("name", ["sigmoid", "ipo"])
def test_dpo_and_ipo_have_trl_s_loss_and_gradient(name: str) -> None:
    trainer_cls = trl_class("trl", "DPOTrainer")
    policy, reference, mask = token_batch()
    theirs_in, ours_in = policy.clone().requires_grad_(), policy.clone().requires_grad_()
    model = TokenModel(theirs_in, mask)
    trainer = trl_trainer(
        model,
        TokenModel(reference, mask),
        beta=0.4,
        label_smoothing=0.0,
        loss_types=[name],
        loss_weights=[1.0],
    )
    inputs = {
        "input_ids": torch.ones(6, 8, dtype=torch.long),
        "attention_mask": torch.ones(6, 8),
        "completion_mask": mask,
    }
    theirs = trainer_cls._compute_loss(trainer, model, inputs, False)
    # TRL divides by 3 pairs itself.
    mine = ours(name, ours_in, reference, mask, PreferenceOptions(beta=0.4, ipo_per_token=True)) / 3
    assert float(mine.detach()) == pytest.approx(float(theirs.detach()), abs=1e-10)
    torch.testing.assert_close(gradient(mine, ours_in), gradient(theirs, theirs_in), atol=1e-10, rtol=0)


@pytest.mark.filterwarnings("ignore:You are importing from 'trl.experimental'")
@pytest.mark.parametrize(
    ("name", "smoothing"), [("simpo", 0.0), ("simpo", 0.1), ("sigmoid", 0.1), ("ipo", 0.0)]
)
def test_simpo_smoothed_dpo_and_summed_ipo_have_trl_s_loss_and_gradient(name: str, smoothing: float) -> None:
    trainer_cls = trl_class("trl.experimental.cpo", "CPOTrainer")
    policy, _, mask = token_batch()
    theirs_in, ours_in = policy.clone().requires_grad_(), policy.clone().requires_grad_()
    sums, tokens = sequence_log_probs(theirs_in, mask)
    sums = sums / tokens if name == "simpo" else sums
    trainer = SimpleNamespace(
        alpha=0.0, loss_type=name, beta=0.6, simpo_gamma=0.3, label_smoothing=smoothing,
        accelerator=SimpleNamespace(device=torch.device("cpu")),
    )  # fmt: skip
    theirs = trainer_cls.cpo_loss(trainer, sums[:3], sums[3:])[0].sum()
    options = PreferenceOptions(beta=0.6, simpo_gamma=0.3, label_smoothing=smoothing)
    # CPO has no reference: ours gets one that is indifferent.
    mine = ours(name, ours_in, torch.zeros_like(policy), mask, options)
    assert float(mine.detach()) == pytest.approx(float(theirs.detach()), abs=1e-10)
    torch.testing.assert_close(gradient(mine, ours_in), gradient(theirs, theirs_in), atol=1e-10, rtol=0)


def test_kto_has_trl_s_loss_and_gradient() -> None:
    trainer_cls = trl_class("trl", "KTOTrainer")
    policy, reference, mask = token_batch()
    theirs_in, ours_in = policy.clone().requires_grad_(), policy.clone().requires_grad_()
    model = TokenModel(theirs_in, mask)
    kl_policy, kl_reference = (
        torch.tensor([-3.0, -4.0], dtype=torch.float64),
        torch.tensor([-3.5, -4.4], dtype=torch.float64),
    )
    trainer = trl_trainer(
        model, TokenModel(reference, mask), beta=0.4, loss_type="kto", calculate_KL=True,
        desirable_weight=1.5, undesirable_weight=0.5,
    )  # fmt: skip
    trainer._compute_kl_logps = lambda which, _: kl_policy if which is model else kl_reference
    labels = torch.tensor([True] * 3 + [False] * 3)
    inputs = {
        "input_ids": torch.ones(6, 8, dtype=torch.long), "attention_mask": torch.ones(6, 8),
        "completion_mask": mask, "label": labels,
    }  # fmt: skip
    theirs = trainer_cls._compute_loss(trainer, model, inputs, False)
    options = PreferenceOptions(beta=0.4, desirable_weight=1.5, undesirable_weight=0.5)
    mine = ours("kto", ours_in, reference, mask, options, kl=float((kl_policy - kl_reference).mean())) / 6
    assert float(mine.detach()) == pytest.approx(float(theirs.detach()), abs=1e-10)
    torch.testing.assert_close(gradient(mine, ours_in), gradient(theirs, theirs_in), atol=1e-10, rtol=0)
