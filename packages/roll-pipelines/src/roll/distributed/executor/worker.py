"""Where the seed guide has `Worker`: the one whose methods forward to `self.strategy`."""

from roll_pipelines.workers import Worker

__all__ = ["Worker"]
