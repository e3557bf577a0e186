"""The role that generates answers with the newest weights that it was sent."""

from typing import Any

from roll_dispatch import Dispatch, register
from roll_pipelines.workers.worker import Worker
from roll_protocol import DataProto


class InferWorker(Worker):
    """A role that generates."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config: Any) -> None:  # Any: each pipeline's own configuration
        """Starts the strategy."""
        super().initialize(pipeline_config)
        self.start_strategy()

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False, prefetch=True)
    def generate(self, prompts: DataProto) -> DataProto:
        """Returns answers to prompts; see `docs/architecture.md`, Generation.

        Args:
            prompts: `input_ids`, `attention_mask` [B, P] padded on the left, `seeds` [B];
                `meta_info["generation_config"]` says how tokens are drawn.

        Returns:
            `responses`, `response_lengths`, `infer_logprobs`, `finish_reasons` of B * n answers, those of a
            prompt together.
        """
        names = [name for name in ("input_ids", "attention_mask", "seeds") if name in prompts]
        return self.engine.generate(prompts.select(names, []), prompts.meta_info["generation_config"]).to(
            "cpu"
        )
