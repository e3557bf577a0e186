"""A tiny model that vLLM can serve, and what the tests of the folder do with it."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from roll_protocol import DataProto
from roll_strategies import ModelSettings, StrategyContext, build_strategy

Engine = Any
"""`VllmInferStrategy`, which cannot be imported where vLLM is missing."""
VOCAB_SIZE = 64
STOP_IDS = (62, 63)
PAD_ID = 61
ENDLESS: dict[str, object] = {"eos_token_id": []}
"""No token ends an answer, so that each has its full length."""
OPTIONS = {"enforce_eager": True, "max_model_len": 128, "kv_cache_memory_bytes": 1 << 26, "digest": "full"}


def save_model(folder: Path, *, tied: bool) -> Path:
    """Saves a tiny model whose attention heads are as wide as vLLM's kernels for a CPU want (32).

    The tied one is a Llama: in vLLM its head is a layer of its own that holds the tensor of the embedding,
    while that of a Qwen2 is the embedding.
    """
    torch.manual_seed(0)
    config = (LlamaConfig if tied else Qwen2Config)(
        vocab_size=VOCAB_SIZE,
        hidden_size=128,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=tied,
        initializer_range=0.2,
        eos_token_id=None,
        bos_token_id=None,
    )
    make: Any = AutoModelForCausalLM  # Any: transformers gives its factories no types
    make.from_config(config).save_pretrained(folder)
    # Instruct models end their answers with tokens that only their generation settings name.
    settings = {"eos_token_id": list(STOP_IDS), "pad_token_id": PAD_ID}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return folder


def context(model: Path, **options: object) -> StrategyContext:
    """Returns the context of a `vllm` engine on that model."""
    return StrategyContext(
        strategy_name="vllm",
        strategy_config=OPTIONS | options,
        model_args=ModelSettings(model_name_or_path=str(model)),
    )


def make_engine(model: Path, **options: object) -> Engine:
    """Returns a `vllm` engine on that model; it has still to be initialised."""
    return build_strategy(context(model, **options))


def prompts(rows: int = 5, width: int = 6) -> DataProto:
    """Returns prompts of 2 to 6 tokens, padded on the left."""
    draws = torch.Generator().manual_seed(3)
    ids = torch.randint(1, VOCAB_SIZE, (rows, width), generator=draws)
    start = torch.arange(rows) % (width - 1)
    mask = (torch.arange(width)[None] >= start[:, None]).long()
    return DataProto.from_single_dict({"input_ids": ids * mask, "attention_mask": mask})


def column(batch: DataProto, name: str) -> Tensor:
    assert batch.batch is not None
    value = batch.batch[name]
    assert isinstance(value, Tensor)
    return value


def expected_log_probs(
    model: torch.nn.Module, batch: DataProto, answers: DataProto, temperature: Tensor
) -> Tensor:
    """Returns what Hugging Face gives for the sampled tokens at each row's temperature, one forward a row."""
    responses, lengths = column(answers, "responses"), column(answers, "response_lengths")
    result = torch.zeros_like(column(answers, "infer_logprobs"))
    count = len(answers) // len(batch)
    for row in range(len(answers)):
        prompt = column(batch, "input_ids")[row // count][
            column(batch, "attention_mask")[row // count].bool()
        ]
        size = int(lengths[row])
        whole = torch.cat([prompt, responses[row, :size]])[None]
        with torch.inference_mode():
            logits = model(whole).logits[0, len(prompt) - 1 : -1] / temperature[row // count]
        result[row, :size] = logits.log_softmax(-1).gather(-1, responses[row, :size, None])[:, 0]
    return result
