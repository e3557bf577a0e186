"""Hugging Face models: scoring and generation with plain PyTorch."""

from roll_strategies.hf.infer import HfInferStrategy

__all__ = ["HfInferStrategy"]
