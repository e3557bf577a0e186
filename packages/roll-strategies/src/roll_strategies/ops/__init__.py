"""Operations on logits that hold no second copy of them, split over ranks or not, and never write to their
inputs."""

from roll_strategies.ops.divergence import divergence, topk_probs_and_indices
from roll_strategies.ops.entropy import entropy
from roll_strategies.ops.language_loss import language_loss
from roll_strategies.ops.layout import Layout, PackedLayout, RowLayout, packed_layout, row_layout
from roll_strategies.ops.logprobs import log_probs, token_log_probs
from roll_strategies.ops.sequence import SequenceShard
from roll_strategies.ops.topk import gather_by_teacher_indices, topk_logits
from roll_strategies.ops.vocabulary import VocabularyShard

__all__ = [
    "Layout",
    "PackedLayout",
    "RowLayout",
    "SequenceShard",
    "VocabularyShard",
    "divergence",
    "entropy",
    "gather_by_teacher_indices",
    "language_loss",
    "log_probs",
    "packed_layout",
    "row_layout",
    "token_log_probs",
    "topk_logits",
    "topk_probs_and_indices",
]
