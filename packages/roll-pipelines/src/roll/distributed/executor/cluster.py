"""Where the seed guide has `Cluster`."""

from roll_executor import Cluster

__all__ = ["Cluster"]
