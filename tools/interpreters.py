"""Finding the Python interpreters that this machine has."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from wheels import uv_command


def find(version: str) -> Path | None:
    """Return an interpreter of a version such as `3.12` that is on this machine, or None."""
    for command in _questions(version):
        environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
        try:
            answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            continue
        path = Path(answer.stdout.strip())
        path = path / "bin" / "python" if path.is_dir() and answer.stdout.strip() else path
        if answer.returncode == 0 and path.is_file():
            return path
    return None


def _questions(version: str) -> Iterator[list[str]]:
    yield [*uv_command(), "python", "find", "--no-config", "--no-project", "--no-python-downloads", version]
    # A shim on the path that pyenv has not switched on stops uv's search, so pyenv is asked as well.
    yield ["pyenv", "prefix", version]
