"""Fail when a file under version control names a package registry's host or a path of one machine.

Such a name works on the machine of whoever wrote it and nowhere else.

Usage: python tools/check_hosts.py [ROOT]
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from layout import ROOT

# Written with gaps, so that this file does not name what it looks for.
HOSTS = (
    "pypi . org",
    "pythonhosted . org",
    "npmjs . org",
    "npmjs . com",
    "deb . debian . org",
    "download . pytorch . org",
)
FOLDERS = ("opt", "work", "root", "home / [a-z0-9_.-]+")
HOST = re.compile("|".join(re.escape(host.replace(" ", "")) for host in HOSTS), re.IGNORECASE)
# A path starts a word: `docs/work/` and `~/root/x` are not absolute. In a URL, the host stands before it.
MACHINE_PATH = re.compile(rf"(?<![\w~.\-/}}])/(?:{'|'.join(one.replace(' ', '') for one in FOLDERS)})/")


def tracked_files(root: Path) -> list[Path]:
    """Return the files under version control in `root`.

    Raises:
        RuntimeError: git does not answer, or tracks nothing there.
    """
    listing = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z"], capture_output=True, text=True, check=False
    )
    files = [root / name for name in listing.stdout.split("\0") if name]
    if listing.returncode or not files:
        raise RuntimeError(f"git lists no files in {root}; run inside a clone. {listing.stderr.strip()}")
    return [path for path in files if path.is_file()]


def complaints(path: Path) -> Iterator[str]:
    """Yield one line for each host or machine path that a text file names."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if match := HOST.search(line):
            yield f"{path}:{number}: names the registry host {match[0]!r}; leave it to pip's settings"
        if match := MACHINE_PATH.search(line):
            yield f"{path}:{number}: names the machine path {match[0]!r}; use a relative path or a variable"


def main(arguments: Sequence[str]) -> int:
    """Print the complaints and return the exit code: 0 clean, 1 complaints, 2 nothing to check."""
    root = Path(arguments[0]) if arguments else ROOT
    try:
        files = tracked_files(root)
    except RuntimeError as error:
        print(f"check_hosts: {error}", file=sys.stderr)
        return 2
    found = [line for path in files for line in complaints(path)]
    for line in found:
        print(line)
    print(f"check_hosts: {len(found)} complaints" if found else f"check_hosts: clean, {len(files)} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
