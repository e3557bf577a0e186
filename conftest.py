"""What every test of the workspace may count on."""

import signal


def pytest_configure() -> None:
    """Let tests interrupt programs: a run in the background starts with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
