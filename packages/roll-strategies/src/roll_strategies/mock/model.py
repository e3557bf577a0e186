"""The smallest model that scores tokens and has weights to send."""

import torch
from torch import Tensor, nn

# B rows   S positions   V vocabulary


class BigramModel(nn.Module):
    """Logits of the next token depend on the current token alone, through a factored table of weights.

    Args:
        vocab_size: V.
        seed: initial weights are drawn from it.
    """

    def __init__(self, *, vocab_size: int, seed: int) -> None:
        super().__init__()
        draws = torch.Generator().manual_seed(seed)
        width = 8
        self.table = nn.Parameter(torch.randn(vocab_size, width, generator=draws))
        self.head = nn.Parameter(torch.randn(vocab_size, width, generator=draws) / width)

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.table.shape[0]

    def forward(self, input_ids: Tensor) -> Tensor:
        """Returns logits [B, S, V]; ids beyond the vocabulary wrap around."""
        return self.table[input_ids % self.vocab_size] @ self.head.T
