"""`vllm`: a vLLM engine in the worker's own process, for sampling.

vLLM reads its environment when it is imported. Three defaults of ours are set before that, where the user has
set nothing: its log begins at warnings, it sends no usage statistics, and the model runs in the older of its
two runners, whose sampler our extension knows.
"""

import os

os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")

from roll_strategies.vllm.infer import VllmInferStrategy  # after the environment is set

__all__ = ["VllmInferStrategy"]
