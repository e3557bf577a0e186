"""Making a virtual environment that holds what it is told and nothing else."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from layout import read_toml, strings, table
from wheels import run, uv_command

UNSEEN = ("PYTHONPATH", "PYTEST_ADDOPTS", "VIRTUAL_ENV", "PYTHONHOME")
"""Variables that would let something else into an environment."""


def make_environment(
    root: Path, place: Path, requirements: Sequence[str], *, python: Path, overrides: Path | None = None
) -> Path:
    """Make an environment, and return its interpreter.

    Args:
        root: the workspace, whose constraints and newest date hold here too.
        place: the folder to make.
        requirements: what to install, as `uv pip install` takes it.
        python: the interpreter to use.
        overrides: a file of versions that hold whatever the requirements ask.

    Raises:
        RuntimeError: installing failed.
    """
    settings = table(read_toml(root / "pyproject.toml"), "tool", "uv")
    newest = ["--exclude-newer", str(settings["exclude-newer"])] if "exclude-newer" in settings else []
    override = ["--override", str(overrides)] if overrides else []
    interpreter = place / "bin" / "python"
    uv = [*uv_command(), "--quiet", "--no-config"]
    run([*uv, "venv", "--no-python-downloads", "--python", str(python), str(place)], without=UNSEEN)
    with tempfile.TemporaryDirectory(prefix="constraints-") as folder:
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text("\n".join(strings(settings.get("constraint-dependencies"))), encoding="utf-8")
        pip = [*uv, "pip", "install", "--python", str(interpreter), "--constraint", str(constraints)]
        run([*pip, *newest, *override, *requirements], without=UNSEEN)
    return interpreter
