"""Where the seed guide has `current_platform`."""

from roll_resources import current_platform

__all__ = ["current_platform"]
