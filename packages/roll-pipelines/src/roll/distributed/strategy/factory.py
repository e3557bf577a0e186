"""Where the seed guide has `create_strategy`."""

from roll_strategies import create_strategy

__all__ = ["create_strategy"]
