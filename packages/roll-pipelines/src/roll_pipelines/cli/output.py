"""What the commands print, and to where: results to standard output, everything else to standard error."""

import logging
import sys

from roll_pipelines.cli.exit_codes import ExitCode
from roll_pipelines.config.problems import ConfigError


def say(text: str) -> None:
    """Writes a line of results."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """Writes a line for the person who watches."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def refuse(error: ConfigError) -> ExitCode:
    """Says everything that is wrong with a configuration, and returns the exit code."""
    tell(f"roll: {error}")
    return ExitCode.REFUSED


def set_up_logging() -> None:
    """Sends the messages of our packages to standard error, one plain line each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for package in ("roll_pipelines", "roll_executor", "roll_resources", "roll_strategies"):
        logging.getLogger(package).setLevel(logging.INFO)
