"""What every test of the workspace may count on."""

import signal


def pytest_configure() -> None:
    """Let tests that interrupt a program do so: a test run in the background was started with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
