"""Where the seed guide has `ResourceManager`."""

from roll_resources import ResourceManager

__all__ = ["ResourceManager"]
