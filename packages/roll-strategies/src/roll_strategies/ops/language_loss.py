"""Cross-entropy of shifted labels, as a sum with its denominator."""

import torch
from torch import Tensor

from roll_strategies.losses import LossSum
from roll_strategies.ops.layout import Layout
from roll_strategies.ops.logprobs import token_log_probs
from roll_strategies.ops.vocabulary import VocabularyShard

IGNORE_INDEX = -100
"""A label that is not learnt."""

# B rows   S positions   V vocabulary


def language_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    layout: Layout | None = None,
    vocabulary: VocabularyShard | None = None,
) -> LossSum:
    """Returns the summed cross-entropy, to be divided by the global number of labels.

    Args:
        logits: [B, S, V], or this rank's positions [B, S_local, V] when the model was fed another layout.
        labels: [B, S], shifted already: `labels[:, t]` is what position t predicts; -100 is not learnt.
        layout: where the positions stand in what the model was fed; None: as they are.
        vocabulary: how the last dimension of the logits is split over ranks; None: it is whole.

    Returns:
        A LossSum over `labels`.
    """
    wanted = labels != IGNORE_INDEX
    targets = torch.where(wanted, labels, 0)
    if layout is not None:
        targets = layout.local(targets)
    values = token_log_probs(logits, targets, vocabulary=vocabulary)
    if layout is not None:
        values = layout.gather(values)
    return LossSum(-torch.where(wanted, values, 0.0).sum(), "labels")
