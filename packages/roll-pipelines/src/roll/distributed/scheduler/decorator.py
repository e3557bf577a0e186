"""Where the seed guide has `Dispatch` and `register`."""

from roll_dispatch import Dispatch, Execute, register

__all__ = ["Dispatch", "Execute", "register"]
