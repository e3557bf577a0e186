"""What the command `roll` returns to the shell."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command."""

    DONE = 0
    """What was asked for is done."""
    FAILED = 1
    """A run started and failed; the message says where, and how to go on."""
    REFUSED = 2
    """The command line or the configuration is wrong; nothing was started."""
    INTERRUPTED = 130
    """Ctrl-C ended the run; its last checkpoint can be resumed."""
    TERMINATED = 143
    """SIGTERM ended the run; its last checkpoint can be resumed."""
