"""What whoever writes an engine needs to test it: the contract as functions, and processes that meet in one
group."""

from roll_strategies.testing.contract import (
    Make,
    check_generation,
    check_resume,
    check_scoring,
    check_states,
    check_training,
    check_update_target,
    whole_state,
)
from roll_strategies.testing.models import small_llama
from roll_strategies.testing.ranks import RankFailure, free_port, run_ranks
from roll_strategies.testing.transports import DirectTransport

__all__ = [
    "DirectTransport",
    "Make",
    "RankFailure",
    "check_generation",
    "check_resume",
    "check_scoring",
    "check_states",
    "check_training",
    "check_update_target",
    "free_port",
    "run_ranks",
    "small_llama",
    "whole_state",
]
