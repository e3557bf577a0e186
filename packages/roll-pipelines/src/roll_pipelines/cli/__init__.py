"""The command `roll`: checks, plans, runs and reports. Heavy imports wait until a command needs them."""

from roll_pipelines.cli.app import main

__all__ = ["main"]
