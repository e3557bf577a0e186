"""Fail when a source file is longer than the house allows.

A file over the limit today stands in `OVER` with its length; entries may shrink or go, never grow or
come. Functions are held by ruff (C901, PLR0915).

Usage: python tools/check_sizes.py [ROOT]
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from layout import ROOT, LayoutError, load_packages

MAX_LINES = 400
FOLDERS = ("packages", "tests-integration", "tools")
OVER: dict[str, int] = {}


def lengths(root: Path) -> dict[str, int]:
    """Return the number of lines of each Python file, by its path from the root.

    Raises:
        LayoutError: the packages are not where they should be.
    """
    load_packages(root)
    files = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))
    return {str(path.relative_to(root)): len(path.read_text(encoding="utf-8").splitlines()) for path in files}


def complaints(found: Mapping[str, int], over: Mapping[str, int]) -> Iterator[str]:
    """Yield one line for each file that is too long and for each entry of the list that no longer holds.

    Args:
        found: path -> number of lines.
        over: path -> number of lines that it may have, for files that were too long when listed.
    """
    for path, lines in found.items():
        limit = over.get(path, MAX_LINES)
        if lines > limit:
            yield f"{path}: {lines} lines, at most {limit} allowed; give one of its nouns its own file"
        elif path in over and lines < limit:
            yield f"{path}: down to {lines} lines; lower or drop its entry in OVER of tools/check_sizes.py"
    for path in over:
        if path not in found:
            yield f"{path}: is gone; drop its entry from OVER of tools/check_sizes.py"


def main(arguments: Sequence[str]) -> int:
    """Print the complaints and return the exit code: 0 clean, 1 complaints, 2 layout moved."""
    root = Path(arguments[0]) if arguments else ROOT
    try:
        found = lengths(root)
    except LayoutError as error:
        print(f"check_sizes: {error}", file=sys.stderr)
        return 2
    wrong = list(complaints(found, OVER))
    for line in wrong:
        print(line)
    print(f"check_sizes: {len(wrong)} complaints" if wrong else f"check_sizes: clean, {len(found)} files")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
