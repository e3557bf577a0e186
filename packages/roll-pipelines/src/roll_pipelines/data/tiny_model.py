"""A small causal language model, built in code and saved as any Hugging Face model is."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from roll_pipelines.data.tokenizer import DEFAULT_ALPHABET, character_tokenizer


@dataclass
class TinyModelConfig:
    """The sizes of a Llama model with random weights and one token for each character."""

    alphabet: str = DEFAULT_ALPHABET
    """The characters that it can read and write."""
    hidden_size: int = 64
    """Width of the residual stream."""
    intermediate_size: int = 128
    """Width inside the feed-forward blocks."""
    num_layers: int = 2
    """Number of blocks."""
    num_heads: int = 4
    """Attention heads of each block."""
    max_positions: int = 128
    """Longest sequence."""
    initializer_range: float = 0.05
    """Standard deviation of the initial weights."""


def save_tiny_model(directory: Path, config: TinyModelConfig, *, seed: int) -> Path:
    """Builds a model and its tokenizer and saves both; returns the directory.

    The random state of the process is left as it was.

    Args:
        directory: where to save; made when it is not there.
        config: the sizes.
        seed: of the weights.

    Raises:
        ValueError: the sizes do not fit each other.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    if config.hidden_size % config.num_heads:
        raise ValueError(
            f"tiny_model.hidden_size must be a multiple of num_heads = {config.num_heads}, "
            f"not {config.hidden_size}"
        )
    tokenizer = character_tokenizer(config.alphabet)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
            LlamaConfig(
                vocab_size=len(tokenizer),
                hidden_size=config.hidden_size,
                intermediate_size=config.intermediate_size,
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_heads,
                num_key_value_heads=config.num_heads,
                max_position_embeddings=config.max_positions,
                initializer_range=config.initializer_range,
                tie_word_embeddings=True,
                bos_token_id=None,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        )
    directory.mkdir(parents=True, exist_ok=True)
    with _no_progress_bar():
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)
    return directory


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
