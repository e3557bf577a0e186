"""Building the packages' wheels and sdists, and reading what is in them."""

import configparser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from layout import Package
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def uv_command() -> list[str]:
    """Return the command that runs uv: the one that started us, the environment's, or the one on the path.

    Raises:
        RuntimeError: there is no uv.
    """
    beside = Path(sys.executable).with_name("uv")
    for candidate in (os.environ.get("UV"), str(beside), shutil.which("uv")):
        if candidate and Path(candidate).is_file():
            return [candidate]
    raise RuntimeError("uv is not installed; run this through `python3 -m uv run`, as the README shows")


def run(command: Sequence[str], *, cwd: Path | None = None, without: Sequence[str] = ()) -> str:
    """Run a command, and return what it printed on its standard output.

    Args:
        command: the program and its arguments.
        cwd: the folder to run in.
        without: environment variables that the command must not see.

    Raises:
        RuntimeError: the command failed; the message ends with what it printed.
    """
    environment = {name: value for name, value in os.environ.items() if name not in {*without, "VIRTUAL_ENV"}}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` gave {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(root: Path, packages: Sequence[Package], out: Path) -> dict[str, Path]:
    """Build an sdist of each package, and a wheel from that sdist, and return the wheels by package name.

    Args:
        root: the workspace.
        packages: its packages.
        out: the folder to write to.

    Raises:
        RuntimeError: a build failed, or gave no wheel or no sdist for a package.
    """
    run([*uv_command(), "build", "--quiet", "--all-packages", "--out-dir", str(out), str(root)])
    return {
        package.name: _built(package, out, "*.tar.gz") and _built(package, out, "*.whl")
        for package in packages
    }


def _built(package: Package, out: Path, pattern: str) -> Path:
    stem = package.name.replace("-", "_")
    found = sorted(out.glob(f"{stem}-{pattern}"))
    if len(found) != 1:
        raise RuntimeError(
            f"{package.name}: building gave {[path.name for path in found]}, not one {pattern}"
        )
    return found[0]


def read_metadata(wheel: Path) -> Message:
    """Return the METADATA of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        return HeaderParser().parsestr(archive.read(name).decode("utf-8"))


def required(wheel: Path) -> list[Requirement]:
    """Return what a wheel requires, extras included."""
    return [Requirement(one) for one in read_metadata(wheel).get_all("Requires-Dist", [])]


def ours(wheel: Path, wheels: Mapping[str, Path]) -> set[str]:
    """Return the packages of this workspace that a wheel without extras brings, itself included."""
    bare = (one for one in required(wheel) if one.marker is None or one.marker.evaluate({"extra": ""}))
    needed = {canonicalize_name(one.name) for one in bare} & set(wheels)
    me = canonicalize_name(str(read_metadata(wheel)["Name"]))
    return {me}.union(*(ours(wheels[name], wheels) for name in needed))


def entry_points(archive: zipfile.ZipFile) -> Iterator[tuple[str, str]]:
    """Yield the name, with its group, and the module of each entry point of an open wheel."""
    for name in archive.namelist():
        if name.endswith(".dist-info/entry_points.txt"):
            parser = configparser.ConfigParser(delimiters=("=",))
            parser.read_string(archive.read(name).decode("utf-8"))
            for group in parser.sections():
                for one, target in parser[group].items():
                    yield f"{group}.{one}", target.partition(":")[0].strip()


def complaints(package: Package, wheel: Path, wheels: Mapping[str, Path]) -> Iterator[str]:
    """Yield one line for each promise about a wheel that it does not keep.

    Args:
        package: the package from which the wheel was built.
        wheel: the wheel.
        wheels: all wheels of the workspace, by package name.
    """
    for line in (*_missing_files(package, wheel), *_missing_metadata(package, wheel)):
        yield f"{wheel.name}: {line}"
    for requirement in required(wheel):
        operators = {one.operator for one in requirement.specifier}
        bounded = operators & {"<", "<=", "==", "~="} and operators & {">", ">=", "==", "~="}
        if canonicalize_name(requirement.name) in wheels and not bounded:
            yield f"{wheel.name}: requires '{requirement}' without both bounds; write it as '>=X.Y,<X.Z'"


def _missing_files(package: Package, wheel: Path) -> Iterator[str]:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        targets = list(entry_points(archive))
    for name, module in targets:
        path = module.replace(".", "/")
        if not inside & {f"{path}.py", f"{path}/__init__.py"}:
            yield f"the entry point {name} names {module}, which is not in it; correct the name"
    for module in package.import_names:
        for file in ("__init__.py", "py.typed"):
            if f"{module}/{file}" not in inside:
                yield f"holds no {module}/{file}; add it to src/ or to the build settings"


def _missing_metadata(package: Package, wheel: Path) -> Iterator[str]:
    metadata = read_metadata(wheel)
    for header in ("Summary", "Requires-Python", "License-Expression"):
        if not metadata[header]:
            yield f"has no {header}; add it to [project] of {package.name}/pyproject.toml"
    if not str(metadata.get_payload()).strip():
        yield f"shows no README; name it in [project] of {package.name}/pyproject.toml"
