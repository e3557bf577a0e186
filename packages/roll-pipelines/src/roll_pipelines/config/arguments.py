"""The named sections of a role's configuration: model, training, generation, data and strategy."""

from dataclasses import dataclass, field
from typing import Literal

Dtype = Literal["float32", "bfloat16", "float16", "fp32", "bf16", "fp16"]

FULL_NAMES: dict[str, Dtype] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Short names of number formats."""


@dataclass
class StrategyArguments:
    """Which engine runs a role, and the engine's own settings."""

    strategy_name: str | None = None
    """The engine's name, such as `fsdp2_train`, `hf_infer` or `vllm`; None for a role without a strategy."""
    strategy_config: dict[str, object] = field(default_factory=dict)
    """Settings that only this engine understands, such as `tensor_parallel_size`."""


@dataclass
class ModelArguments:
    """Which weights a role loads, and how."""

    model_name_or_path: str | None = None
    """A Hugging Face model directory or hub name; defaults to the configuration's `pretrain`."""
    dtype: Dtype = "float32"
    """Number format in which the weights are held; `fp32`, `bf16` and `fp16` are other names of the three."""
    attn_implementation: str | None = None
    """Attention kernel, as Hugging Face names it: `eager`, `sdpa`, `flash_attention_2`."""
    model_type: Literal["causal_lm", "token_classification", "sequence_classification"] = "causal_lm"
    """The model's head: a language model, a critic or a reward model."""
    num_labels: int = 1
    """Width of a critic's or reward model's head."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass to save memory."""
    freeze_module_prefix: list[str] = field(default_factory=list)
    """Parameters whose name starts with one of these are not trained."""
    lora_rank: int = 0
    """Rank of the LoRA adapters; 0 trains all weights."""
    lora_alpha: float = 16.0
    """Scale of the LoRA adapters."""
    lora_dropout: float = 0.0
    """Dropout on the input of the LoRA adapters."""
    lora_target: list[str] | str | None = None
    """Names of the modules that get an adapter; every linear layer but the head when None."""

    def __post_init__(self) -> None:
        """Writes a short name of a number format in full."""
        self.dtype = FULL_NAMES.get(self.dtype, self.dtype)


@dataclass
class TrainingArguments:
    """The optimiser, its schedule and the sizes of its batches."""

    learning_rate: float = 1e-5
    """Peak learning rate."""
    weight_decay: float = 0.0
    """Decoupled weight decay of AdamW."""
    adam_beta1: float = 0.9
    """Decay of the first moment."""
    adam_beta2: float = 0.999
    """Decay of the second moment."""
    adam_epsilon: float = 1e-8
    """Added to the denominator of the update."""
    optimizer: Literal["adamw", "adamw_8bit"] = "adamw"
    """AdamW, or its variant that keeps its state in 8 bits (needs torchao)."""
    lr_scheduler_type: Literal["constant", "constant_with_warmup", "linear", "cosine"] = "constant"
    """Shape of the learning rate after the warm-up."""
    warmup_steps: int = 0
    """Optimiser steps in which the learning rate rises from zero."""
    warmup_ratio: float = 0.0
    """Warm-up as a fraction of `max_steps`, used when `warmup_steps` is 0."""
    max_steps: int | None = None
    """Optimiser steps over which `linear` and `cosine` decay; derived by the pipeline when None."""
    max_grad_norm: float | None = 1.0
    """Largest gradient norm; None or 0 leaves gradients as they are."""
    per_device_train_batch_size: int = 1
    """Rows of one micro-batch on one data-parallel rank."""
    gradient_accumulation_steps: int = 1
    """Micro-batches of one optimiser step on one data-parallel rank."""
    num_train_epochs: float = 1.0
    """Passes over the data, for pipelines that train on a fixed data set."""


@dataclass
class GeneratingArguments:
    """How tokens are sampled."""

    max_new_tokens: int | None = None
    """Most tokens of one answer; the configuration's `response_length` when None."""
    temperature: float = 1.0
    """Divides the logits; 0 takes the most likely token."""
    top_p: float = 1.0
    """Smallest probability mass to sample from."""
    top_k: int = 0
    """Number of tokens to sample from; 0 means all."""
    num_return_sequences: int = 1
    """Answers for each prompt."""
    repetition_penalty: float = 1.0
    """Divides the scores of tokens that were already used."""
    do_sample: bool = True
    """Sample; when false the most likely token is taken."""
    stop_strings: list[str] = field(default_factory=list)
    """Texts that end an answer."""
    include_stop_str_in_output: bool = True
    """Keep the text that ended an answer."""


@dataclass
class DataArguments:
    """Where rows come from, and how they are read."""

    file_name: str | list[str] | None = None
    """One file or several: JSON, JSONL, Parquet or CSV."""
    file_weights: list[float] | None = None
    """How often each file is drawn from, relative to the others; by size when None."""
    prompt: str | None = None
    """Column of the prompt; the pipeline's own default when None."""
    response: str | None = None
    """Column of the answer; the pipeline's own default when None."""
    messages: str | None = None
    """Column of chat messages, instead of prompt and answer."""
    template: str | None = None
    """Name of the chat template; the tokenizer's own when None."""
    max_length_policy: Literal["drop", "truncate_left", "truncate_right"] = "truncate_right"
    """What happens to a row that is longer than `sequence_length`; the number is a metric."""
    preprocessing_num_workers: int = 1
    """Processes that encode rows."""
    shuffle: bool = True
    """Shuffle every epoch with the configuration's seed."""
