"""Cross-entropy of shifted labels, as a sum with its denominator."""

import torch
from torch import Tensor

from roll_strategies.losses import LossSum
from roll_strategies.ops.logprobs import token_log_probs
from roll_strategies.ops.sequence import SequenceShard

IGNORE_INDEX = -100
"""A label that is not learnt."""

# B rows   S positions   V vocabulary


def language_loss(logits: Tensor, labels: Tensor, *, shard: SequenceShard | None = None) -> LossSum:
    """Returns the summed cross-entropy, to be divided by the global number of labels.

    Args:
        logits: [B, S, V], or this rank's positions [B, S_local, V] when the sequence is split.
        labels: [B, S], shifted already: `labels[:, t]` is what position t predicts; -100 is not learnt.
        shard: how the sequence is split.

    Returns:
        A LossSum over `labels`.
    """
    wanted = labels != IGNORE_INDEX
    targets = torch.where(wanted, labels, 0)
    if shard is not None:
        targets = shard.local(targets)
    values = token_log_probs(logits, targets)
    if shard is not None:
        values = shard.gather(values, labels.shape[1])
    return LossSum(-torch.where(wanted, values, 0.0).sum(), "labels")
