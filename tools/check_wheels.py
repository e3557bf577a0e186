"""Build every package; fail when a wheel lacks a module, `py.typed`, a README, or bounds between packages.

Usage: python tools/check_wheels.py [--root ROOT] [--out FOLDER]
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from layout import ROOT, LayoutError, load_packages
from wheels import build, complaints


def check(root: Path, out: Path) -> list[str]:
    """Build the packages of a workspace into `out`, and return what is wrong with the wheels.

    Raises:
        LayoutError: the tree is not laid out as expected.
        RuntimeError: a build failed.
    """
    packages = load_packages(root)
    wheels = build(root, packages, out)
    return [line for package in packages for line in complaints(package, wheels[package.name], wheels)]


def main(arguments: Sequence[str]) -> int:
    """Print the complaints and return the exit code: 0 clean, 1 complaints, 2 nothing could be built."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="the workspace (default: this one)")
    parser.add_argument("--out", type=Path, help="keep the wheels and sdists in this folder")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            found = check(options.root, options.out or Path(scratch))
        except (LayoutError, RuntimeError) as error:
            print(f"check_wheels: {error}", file=sys.stderr)
            return 2
    for line in found:
        print(line)
    print(f"check_wheels: {len(found)} complaints" if found else "check_wheels: clean")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
