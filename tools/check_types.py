"""Run mypy, as strict as the root's settings say, over the sources, the tools and every folder of tests.

Tests take a run per package, or several, because mypy takes no two test files of one name at once.

Usage: python tools/check_types.py [ROOT]
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from layout import ROOT, LayoutError, load_packages


def runs(root: Path) -> Iterator[list[Path]]:
    """Yield the files and folders that each run of mypy takes.

    Raises:
        LayoutError: the packages are not where they should be.
    """
    packages = load_packages(root)
    tools = [path for path in (root / "tools").rglob("*.py") if "tests" not in path.parts]
    yield [*(package.folder / "src" for package in packages), *sorted(tools)]
    tests = [package.folder / "tests" for package in packages]
    for folder in [*tests, root / "tools" / "tests", root / "tests-integration"]:
        yield from apart(folder.rglob("*.py"))


def apart(files: Iterable[Path]) -> list[list[Path]]:
    """Return the files in as few runs as keep folders whole and equal names apart, first fit."""
    folders: dict[Path, list[Path]] = {}
    for file in sorted(files):
        folders.setdefault(file.parent, []).append(file)
    found: list[list[Path]] = []
    for together in folders.values():
        names = {file.stem for file in together}
        fitting = (run for run in found if names.isdisjoint(file.stem for file in run))
        if (run := next(fitting, None)) is None:
            found.append(list(together))
        else:
            run += together
    return found


def check(root: Path) -> list[str]:
    """Return what mypy complains about, one line each.

    Raises:
        LayoutError: the packages are not where they should be.
        RuntimeError: mypy itself failed.
    """
    found: list[str] = []
    for paths in runs(root):
        names = [str(path.relative_to(root)) for path in paths]
        command = [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            "pyproject.toml",
            "--no-error-summary",
            *names,
        ]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1) or done.stderr:
            raise RuntimeError(f"mypy gave {done.returncode} on {names}:\n{done.stdout}{done.stderr}")
        found += done.stdout.splitlines()
    return found


def main(arguments: Sequence[str]) -> int:
    """Print the complaints and return the exit code: 0 clean, 1 complaints, 2 nothing could be checked."""
    try:
        found = check(Path(arguments[0]).resolve() if arguments else ROOT)
    except (LayoutError, RuntimeError) as error:
        print(f"check_types: {error}", file=sys.stderr)
        return 2
    for line in found:
        print(line)
    errors = sum(": error:" in line for line in found)
    print(f"check_types: {errors} errors" if found else "check_types: clean")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
