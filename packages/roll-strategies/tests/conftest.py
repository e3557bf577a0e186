"""Tiny models in the Hugging Face format, built once."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

from roll_strategies.testing import small_llama

torch.set_num_threads(1)


def build_tiny(
    directory: Path, *, tied: bool = False, layers: int = 2, dtype: torch.dtype = torch.float32
) -> Path:
    """Writes a causal language model of 2 layers and 48 tokens."""
    model = small_llama(
        dtype=dtype,
        num_hidden_layers=layers,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            # Larger than the library's own start, so that the model has opinions.
            parameter.copy_(
                torch.randn_like(parameter) * (0.1 if parameter.dim() > 1 else 0.05) + (parameter.dim() == 1)
            )
    model.save_pretrained(directory)  # type: ignore[operator]  # a transformers model
    return directory


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny_tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("tied"), tied=True)


@pytest.fixture(scope="session")
def tiny_double(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("double"), dtype=torch.float64)
