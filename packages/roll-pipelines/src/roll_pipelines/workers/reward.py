"""The role that judges answers by a rule; it needs no strategy."""

from typing import Any

import torch
from transformers import AutoTokenizer

from roll_dispatch import Dispatch, register
from roll_pipelines.columns import objects
from roll_pipelines.rewards import Answered, find_reward
from roll_pipelines.rollouts import answer_texts
from roll_pipelines.workers.worker import Worker
from roll_protocol import DataProto


class RewardWorker(Worker):
    """A role that gives each answer a number, with the function that its configuration names."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config: Any) -> None:  # Any: each pipeline's own configuration
        """Loads the tokenizer of the model and makes the reward function."""
        super().initialize(pipeline_config)
        self.tokenizer = AutoTokenizer.from_pretrained(self.worker_config.model_args.model_name_or_path)
        self.reward = find_reward(self.worker_config.reward_fn, self.worker_config.reward_args)

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False)
    def compute_rewards(self, rows: DataProto) -> DataProto:
        """Returns the reward of every answer.

        Args:
            rows: `responses` [B, R], `response_lengths` [B], and the object columns `prompt`, `expected`,
                `entry` and `finish_reasons`.

        Returns:
            `rewards` [B] float32.
        """
        columns = [objects(rows, name) for name in ("prompt", "expected", "entry", "finish_reasons")]
        texts = answer_texts(rows, self.tokenizer)
        rewards = [
            self.reward(
                Answered(
                    prompt=prompt, response=text, expected=expected, entry=entry, finished=reason == "stop"
                )
            )
            for text, prompt, expected, entry, reason in zip(texts, *columns, strict=True)
        ]
        return DataProto.from_single_dict({"rewards": torch.tensor(rewards, dtype=torch.float32)})
