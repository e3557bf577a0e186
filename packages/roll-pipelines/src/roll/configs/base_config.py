"""Where the seed guide has `BaseConfig`."""

from roll_pipelines.config import BaseConfig

__all__ = ["BaseConfig"]
