"""The model that is built in code: any Hugging Face reader takes it."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from roll_pipelines.data import TinyModelConfig, save_tiny_model


def test_the_model_and_its_tokenizer_load_as_any_other_do(tmp_path: Path) -> None:
    save_tiny_model(tmp_path, TinyModelConfig(alphabet="ab=", hidden_size=16, num_layers=1), seed=0)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    logits = model(**tokenizer("ab=", return_tensors="pt")).logits
    assert logits.shape == (1, 3, len(tokenizer))
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id


def test_the_seed_alone_decides_the_weights(tmp_path: Path) -> None:
    config = TinyModelConfig(hidden_size=16, num_layers=1)
    before = torch.get_rng_state()
    folders = [
        save_tiny_model(tmp_path / name, config, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    first, again, other = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert first == again
    assert first != other
    assert torch.equal(before, torch.get_rng_state())


def test_a_width_that_the_heads_do_not_divide_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="multiple of num_heads = 4, not 18"):
        save_tiny_model(tmp_path, TinyModelConfig(hidden_size=18), seed=0)
