"""Models to test with: small, and the same wherever they are made."""

from typing import Any

import torch
from torch import nn

SIZES = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
}


def small_llama(*, seed: int = 0, dtype: torch.dtype = torch.float32, **fields: object) -> nn.Module:
    """Returns a causal language model with drawn weights; torch's own draws go on from the seed.

    Llama has no bias on its keys: softmax ignores such a bias, so its gradient is rounding noise, which Adam
    would scale up.

    Args:
        seed: of the weights.
        dtype: of the weights.
        fields: of `transformers.LlamaConfig`, where `SIZES` is not what is wanted.
    """
    import transformers  # an engine without it is tested with models of its own

    torch.manual_seed(seed)
    values: dict[str, Any] = SIZES | fields  # Any: of many types
    model: nn.Module = transformers.AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]  # transformers
        transformers.LlamaConfig(**values), dtype=dtype
    )
    return model
