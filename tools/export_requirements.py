"""Write or check `requirements.lock`: every dependency, pinned by version and hash, without addresses.

The workspace is resolved in a copy, from the public registry's metadata alone, so that no local folder
of wheels leaks into it. Nothing is installed.

Usage: python tools/export_requirements.py [--check] [--root ROOT]
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from layout import ROOT, LayoutError, load_packages
from packaging.requirements import Requirement
from wheels import run, uv_command

LOCAL = (
    "UV_FIND_LINKS",
    "UV_NO_INDEX",
    "UV_OFFLINE",
    "UV_FROZEN",
    "UV_LOCKED",
    "UV_PROJECT",
    "UV_EXTRA_INDEX_URL",
)
HEADER = """\
# What the six packages need, pinned by version and hash. Made by: python tools/export_requirements.py
# Install: pip install --require-hashes -r requirements.lock && pip install --no-deps ./packages/*/
"""


def export(root: Path) -> str:
    """Return the text that `requirements.lock` should have.

    Raises:
        LayoutError: the tree is not laid out as expected.
        RuntimeError: the workspace does not resolve.
    """
    with tempfile.TemporaryDirectory(prefix="lock-") as folder:
        copy = Path(folder)
        shutil.copy(root / "pyproject.toml", copy)
        for package in load_packages(root):
            place = copy / "packages" / package.name
            place.mkdir(parents=True)
            for name in ("pyproject.toml", "README.md"):
                shutil.copy(package.folder / name, place)
        run([*uv_command(), "lock", "--quiet", "--no-progress"], cwd=copy, without=LOCAL)
        options = ["--frozen", "--quiet", "--no-header", "--no-annotate", "--no-emit-workspace"]
        return HEADER + run([*uv_command(), "export", *options], cwd=copy, without=LOCAL)


def pins(text: str) -> dict[str, set[str]]:
    """Return what a lock pins: a requirement, marker included -> its hashes."""
    lines = (
        line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")
    )
    found: dict[str, set[str]] = {}
    for line in lines:
        requirement, *hashes = line.split(" --hash=")
        found.setdefault(str(Requirement(requirement.strip())), set()).update(one.strip() for one in hashes)
    return found


def differences(committed: str, fresh: str) -> list[str]:
    """Return a line for each pin in which a committed lock differs from a fresh one, whatever the order."""
    old, new = pins(committed), pins(fresh)
    return [
        *(f"requirements.lock still has {one}" for one in sorted(old.keys() - new.keys())),
        *(f"requirements.lock lacks {one}" for one in sorted(new.keys() - old.keys())),
        *(
            f"requirements.lock has other hashes for {one}"
            for one in sorted(old.keys() & new.keys())
            if old[one] != new[one]
        ),
    ]


def main(arguments: Sequence[str]) -> int:
    """Write or check the lock and return the exit code: 0 good, 1 out of date, 2 not resolved."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when the lock is out of date"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the workspace (default: this one)")
    options = parser.parse_args(arguments)
    lock: Path = options.root / "requirements.lock"
    try:
        fresh = export(options.root)
    except (LayoutError, RuntimeError) as error:
        print(f"export_requirements: {error}", file=sys.stderr)
        return 2
    if not options.check:
        lock.write_text(fresh, encoding="utf-8")
        print(f"export_requirements: wrote {lock}, {len(pins(fresh))} pins")
        return 0
    found = differences(lock.read_text(encoding="utf-8") if lock.is_file() else "", fresh)
    for line in found:
        print(line)
    print(
        f"export_requirements: {len(found)} differences; run tools/export_requirements.py and commit"
        if found
        else f"export_requirements: up to date, {len(pins(fresh))} pins"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
