"""Packages that somebody else wrote, as their wheels install them."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path


def unpacked_wheel(source: Path, place: Path) -> Path:
    """Return a folder that holds a package as its wheel installs it.

    Args:
        source: the package's source, with its pyproject.toml.
        place: an empty folder.
    """
    uv = [os.environ["UV"]] if "UV" in os.environ else [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "build", "--wheel", "--quiet", "--out-dir", str(place)], cwd=source, check=True)
    [wheel] = place.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(place / "site")
    return place / "site"
