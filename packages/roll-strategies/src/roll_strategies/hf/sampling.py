"""Drawing one token per row: temperature, top-k, top-p, and numbers that depend on a row's seed alone."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roll_strategies.request import Sampling

# N rows   V vocabulary

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def _mixed(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Returns well-mixed bits; a bijection on 64-bit numbers."""
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    return state ^ (state >> np.uint64(31))


def uniforms(seeds: Tensor, samples: Tensor, steps: Tensor) -> Tensor:
    """Returns one number in [0, 1) per row that depends on that row's seed, sample and step, and on nothing
    else.

    Args:
        seeds: [N] int64.
        samples: [N] int64.
        steps: [N] int64.

    Returns:
        [N] float64 on the CPU.
    """
    seed, sample, step = (t.cpu().numpy().astype(np.uint64) for t in (seeds, samples, steps))
    one = np.uint64(1)
    state = _mixed(seed + _GOLDEN)
    state = _mixed(state + (sample + one) * _GOLDEN)
    state = _mixed(state + (step + one) * _GOLDEN)
    return torch.from_numpy((state >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def draw(logits_NV: Tensor, sampling: Sampling, uniform_N: Tensor) -> tuple[Tensor, Tensor]:
    """Returns one token per row and its log-probability.

    The log-probability is that of the whole distribution at the row's temperature (1 for greedy rows),
    before top-k and top-p cut it: it is what a trainer computes for the same token.

    Args:
        logits_NV: any float dtype.
        sampling: how each row draws.
        uniform_N: numbers in [0, 1).

    Returns:
        tokens [N] int64 and log-probabilities [N] float32.
    """
    greedy_N = sampling.temperature == 0
    scale = torch.where(greedy_N, 1.0, sampling.temperature).to(device=logits_NV.device, dtype=torch.float32)
    logp_NV = torch.log_softmax(logits_NV.float() / scale[:, None], dim=-1)
    greedy_N = greedy_N.to(logits_NV.device)
    if bool(greedy_N.all()):
        tokens_N = logp_NV.argmax(-1)
    else:
        probs_NV = _cut(logp_NV, sampling).exp()
        cdf_NV = probs_NV.cumsum(-1, dtype=torch.float64)
        total_N = cdf_NV[:, -1:]
        below = torch.nextafter(total_N, torch.zeros_like(total_N))
        target = torch.minimum(uniform_N.to(logits_NV.device)[:, None] * total_N, below)
        tokens_N = torch.searchsorted(cdf_NV, target, right=True).squeeze(-1)
        tokens_N = torch.where(greedy_N, logp_NV.argmax(-1), tokens_N)
    return tokens_N, logp_NV.gather(-1, tokens_N[:, None]).squeeze(-1)


def _cut(logp_NV: Tensor, sampling: Sampling) -> Tensor:
    """Returns log-probabilities with -inf for the tokens that top-k and top-p leave out."""
    width = logp_NV.shape[-1]
    top_k = sampling.top_k.to(logp_NV.device)
    top_p = sampling.top_p.to(logp_NV.device)
    if bool((top_k > 0).any()):
        largest = int(top_k.clamp(max=width).max())
        ranked = torch.topk(logp_NV, largest, dim=-1).values
        last = torch.where(top_k > 0, top_k.clamp(max=width), 1) - 1
        floor = ranked.gather(-1, last[:, None])
        drop = (top_k > 0)[:, None] & (logp_NV < floor)
        logp_NV = logp_NV.masked_fill(drop, float("-inf"))
    if bool((top_p < 1).any()):
        ranked, order = torch.sort(logp_NV, dim=-1, descending=True, stable=True)
        mass = torch.softmax(ranked, dim=-1, dtype=torch.float64)
        before = mass.cumsum(-1) - mass
        # The first token is always kept; others while the mass before them is short of top_p.
        drop_sorted = (before >= top_p[:, None]) & (top_p < 1)[:, None]
        drop_sorted[:, 0] = False
        drop = torch.zeros_like(drop_sorted).scatter(-1, order, drop_sorted)
        logp_NV = logp_NV.masked_fill(drop, float("-inf"))
    return logp_NV
