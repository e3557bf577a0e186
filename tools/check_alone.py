"""Run each package's tests in an environment that holds only that package and what it declares.

The built wheel is installed, never the source tree, with the wheels of the workspace packages that it
requires and with its `test` dependency group. The tests run from a copy outside the tree. Tests marked
`ray` run in a second environment, for packages that have an extra of that name.

Usage: python tools/check_alone.py [--root ROOT] [--python VERSION [--if-found]] [--bare] [PACKAGE ...]
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from environments import UNSEEN, make_environment
from interpreters import find
from layout import ROOT, LayoutError, Package, load_packages, read_toml, strings, table
from wheels import build, ours, run, uv_command

THIS_PYTHON = Path(sys.executable)
NO_TESTS = 5  # pytest's exit code when it collected nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """One environment, and the tests of one package to run in it."""

    package: Package
    markers: str
    """What is given to pytest's `-m`."""
    extra: str = ""
    """The extra to install, if any."""

    def __str__(self) -> str:
        return f"{self.package.name}[{self.extra}]" if self.extra else self.package.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What running one suite gave."""

    suite: Suite
    passed: bool
    summary: str
    """Pytest's closing line, or why there is none."""
    output: str
    seconds: float


def suites(package: Package) -> Iterator[Suite]:
    """Yield the environments in which a package's tests run.

    The first one has no extras: it leaves out tests marked `ray`, and files named `…_on_ray.py`, which may
    import Ray. The second one, for packages with an extra `ray`, runs everything.
    """
    yield Suite(package=package, markers="not slow and not ray")
    extras = table(read_toml(package.folder / "pyproject.toml"), "project", "optional-dependencies")
    if "ray" in extras and any("mark.ray" in path.read_text(encoding="utf-8") for path in package.tests):
        yield Suite(package=package, markers="not slow", extra="ray")


def copy_tests(root: Path, package: Package, scratch: Path, *, leave_out: str = "") -> Path:
    """Copy a package without its sources, and the pytest settings, and return the folder of its tests.

    Args:
        root: the workspace.
        package: the package.
        scratch: the folder to copy to.
        leave_out: a pattern of names of files that are not copied.

    Raises:
        LayoutError: the package has no folder of tests.
    """
    if not package.tests:
        raise LayoutError(f"{package.folder}/tests holds no Python files; every package has tests of its own")
    place = scratch / "packages" / package.name
    shutil.copytree(
        package.folder, place, ignore=shutil.ignore_patterns("src", "__pycache__", ".*", "dist", leave_out)
    )
    shutil.copy(root / "pyproject.toml", scratch / "pyproject.toml")
    return place / "tests"


def install(root: Path, suite: Suite, wheels: Mapping[str, Path], scratch: Path, python: Path) -> Path:
    """Make the environment of a suite, and return its interpreter.

    Args:
        root: the workspace, whose version constraints hold here too.
        suite: the package and the extra to install.
        wheels: the built wheels, by package name.
        scratch: the folder in which the environment is made.
        python: the interpreter to use.

    Raises:
        RuntimeError: installing failed, or brought a package of this workspace that is not declared.
    """
    groups = table(read_toml(suite.package.folder / "pyproject.toml"), "dependency-groups")
    needed = ours(wheels[suite.package.name], wheels)
    paths = [str(wheels[name]) for name in sorted(needed - {suite.package.name})]
    target = (
        f"{wheels[suite.package.name]}[{suite.extra}]" if suite.extra else str(wheels[suite.package.name])
    )
    tests = strings(groups.get("test"))
    interpreter = make_environment(root, scratch / "venv", [target, *paths, *tests], python=python)
    uv = [*uv_command(), "--quiet", "--no-config"]
    listing = run([*uv, "pip", "list", "--format", "freeze", "--python", str(interpreter)], without=UNSEEN)
    present = {line.split("==")[0].split(" @ ")[0] for line in listing.splitlines()} & set(wheels)
    if present != needed:
        raise RuntimeError(
            f"{suite}: installing it brought {sorted(present)} of this workspace, not {sorted(needed)}"
        )
    return interpreter


def test(root: Path, suite: Suite, wheels: Mapping[str, Path], python: Path) -> Outcome:
    """Run one suite in a fresh environment and return its outcome."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"alone-{suite.package.name}-") as folder:
        scratch = Path(folder)
        leave_out = "" if suite.extra else "*_on_ray.py"
        tests = copy_tests(root, suite.package, scratch, leave_out=leave_out)
        interpreter = install(root, suite, wheels, scratch, python)
        command = [
            str(interpreter),
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-m",
            suite.markers,
            str(tests),
        ]
        environment = {name: value for name, value in os.environ.items() if name not in UNSEEN}
        done = subprocess.run(
            command,
            cwd=scratch,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    output = done.stdout + done.stderr
    closing = [line.strip("= ") for line in output.splitlines() if re.search(r"\bin [\d.]+s", line)]
    summary = closing[-1] if closing else f"pytest gave {done.returncode} and no closing line"
    if done.returncode == NO_TESTS:
        summary = "no test to run; every package has tests that need nothing but what it declares"
    return Outcome(
        suite=suite,
        passed=done.returncode == 0,
        summary=summary,
        output=output,
        seconds=time.monotonic() - start,
    )


def check(root: Path, chosen: Sequence[str], python: Path, *, bare: bool = False) -> Iterator[Outcome]:
    """Yield the outcome of each suite of the chosen packages (all of them when none is named).

    Args:
        root: the workspace.
        chosen: names of packages.
        python: the interpreter to use.
        bare: leave out the environments that install an extra.

    Raises:
        LayoutError: the tree is not laid out as expected, or holds no package of a chosen name.
        RuntimeError: a build or an installation failed.
    """
    packages = load_packages(root)
    if unknown := set(chosen) - {package.name for package in packages}:
        raise LayoutError(
            f"no packages named {sorted(unknown)}; choose from {[one.name for one in packages]}"
        )
    with tempfile.TemporaryDirectory(prefix="alone-wheels-") as folder:
        wheels = build(root, packages, Path(folder))
        for package in packages:
            if not chosen or package.name in chosen:
                chosen_suites = (suite for suite in suites(package) if not (bare and suite.extra))
                yield from (test(root, suite, wheels, python) for suite in chosen_suites)


def main(arguments: Sequence[str]) -> int:
    """Print a line per suite and return the exit code: 0 passed, 1 failed, 2 could not run."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("package", nargs="*", help="the packages to test (default: all)")
    parser.add_argument("--root", type=Path, default=ROOT, help="the workspace (default: this one)")
    parser.add_argument(
        "--python", metavar="VERSION", help="the version of Python to use (default: this one's)"
    )
    parser.add_argument(
        "--if-found", action="store_true", help="succeed where this machine has no such Python"
    )
    parser.add_argument("--bare", action="store_true", help="only the environments without extras")
    options = parser.parse_args(arguments)
    python = find(options.python) if options.python else THIS_PYTHON
    if python is None:
        print(f"check_alone: this machine has no Python {options.python}, so nothing ran on it")
        return 0 if options.if_found else 2
    failed = 0
    try:
        for outcome in check(options.root.resolve(), options.package, python, bare=options.bare):
            verdict = "passed" if outcome.passed else "FAILED"
            print(
                f"{outcome.suite} {verdict} alone in {outcome.seconds:.0f} s: {outcome.summary}", flush=True
            )
            if not outcome.passed:
                print(outcome.output, flush=True)
                failed += 1
    except (LayoutError, RuntimeError) as error:
        print(f"check_alone: {error}", file=sys.stderr)
        return 2
    print(f"check_alone: {failed} suites failed" if failed else "check_alone: clean")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
