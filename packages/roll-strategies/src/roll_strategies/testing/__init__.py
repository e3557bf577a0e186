"""What whoever writes an engine needs to test it: processes that meet in one group, and the contract as
functions."""

from roll_strategies.testing.ranks import RankFailure, free_port, run_ranks
from roll_strategies.testing.transports import DirectTransport

__all__ = ["DirectTransport", "RankFailure", "free_port", "run_ranks"]
