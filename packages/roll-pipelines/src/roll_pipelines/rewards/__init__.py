"""Rewards: functions from an answer to a number, found by name."""

from roll_pipelines.rewards.registry import BUILT_IN, find_reward
from roll_pipelines.rewards.reward import Answered, RewardFactory, RewardFunction

__all__ = ["BUILT_IN", "Answered", "RewardFactory", "RewardFunction", "find_reward"]
