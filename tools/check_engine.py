"""Run the tests of an engine whose libraries conflict with others, in an environment of its own.

`tests-integration/engines/NAME` holds the tests, `requirements.txt` with what they need beside the packages
of this workspace, and, where those ask for too much, `overrides.txt` (see `uv pip install --override`). The
built wheels of the packages are installed with the extras that the workspace itself asks for.

Usage: python tools/check_engine.py NAME [--root ROOT] [--environment FOLDER] [PYTEST_ARGUMENT ...]
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from environments import UNSEEN, make_environment
from layout import ROOT, LayoutError, load_packages, read_toml, strings, table
from packaging.requirements import Requirement
from wheels import build


def folder_of(root: Path, engine: str) -> Path:
    """Return the folder of an engine's tests.

    Raises:
        LayoutError: there is no such folder, or it says not what it needs.
    """
    engines = root / "tests-integration" / "engines"
    if not (engines / engine / "requirements.txt").is_file():
        known = sorted(path.parent.name for path in engines.glob("*/requirements.txt"))
        raise LayoutError(f"{engines / engine} has no requirements.txt; engines that have one: {known}")
    return engines / engine


def targets(root: Path, wheels: Mapping[str, Path]) -> list[str]:
    """Return the workspace's own requirements as built wheels, with the extras that it asks for."""
    wanted = strings(table(read_toml(root / "pyproject.toml"), "project").get("dependencies"))
    parsed = [Requirement(one) for one in wanted]
    return [
        f"{wheels[one.name]}[{','.join(sorted(one.extras))}]" if one.extras else str(wheels[one.name])
        for one in parsed
        if one.name in wheels
    ]


def install(root: Path, tests: Path, place: Path) -> Path:
    """Make the environment of an engine, and return its interpreter.

    Args:
        root: the workspace, whose version constraints hold here too.
        tests: the folder of the engine's tests.
        place: where the environment is made.

    Raises:
        RuntimeError: a build or an installation failed.
    """
    overrides = tests / "overrides.txt"
    with tempfile.TemporaryDirectory(prefix="engine-wheels-") as folder:
        wheels = build(root, load_packages(root), Path(folder))
        needed = [*targets(root, wheels), "--requirement", str(tests / "requirements.txt")]
        given = overrides if overrides.is_file() else None
        return make_environment(root, place, needed, python=Path(sys.executable), overrides=given)


def check(root: Path, engine: str, place: Path, arguments: Sequence[str]) -> int:
    """Run an engine's tests and return pytest's exit code.

    Raises:
        LayoutError: there are no such tests.
        RuntimeError: the environment could not be made.
    """
    tests = folder_of(root, engine)
    interpreter = install(root, tests, place)
    print(f"check_engine: the environment of {engine} holds {_megabytes(place)} MB", flush=True)
    environment = {name: value for name, value in os.environ.items() if name not in UNSEEN}
    command = [str(interpreter), "-m", "pytest", "-p", "no:cacheprovider", *arguments, str(tests)]
    return subprocess.run(
        command, cwd=root, env=environment, stdin=subprocess.DEVNULL, check=False
    ).returncode


def _megabytes(place: Path) -> int:
    found = (path.lstat().st_size for path in place.rglob("*") if not path.is_symlink())
    return round(sum(found) / 1e6)


def main(arguments: Sequence[str]) -> int:
    """Run the tests and return the exit code: 0 passed, 1 failed, 2 could not run."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("engine", help="a folder of tests-integration/engines")
    parser.add_argument("--root", type=Path, default=ROOT, help="the workspace (default: this one)")
    parser.add_argument("--environment", type=Path, help="make the environment here and keep it")
    options, passed_on = parser.parse_known_args(arguments)
    root = options.root.resolve()
    try:
        with tempfile.TemporaryDirectory(prefix=f"engine-{options.engine}-") as folder:
            place = options.environment or Path(folder) / "venv"
            code = check(root, options.engine, place, passed_on)
    except (LayoutError, RuntimeError) as error:
        print(f"check_engine: {error}", file=sys.stderr)
        return 2
    verdict = f"failed (pytest gave {code})" if code else "clean"
    print(f"check_engine: {options.engine} {verdict}")
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
