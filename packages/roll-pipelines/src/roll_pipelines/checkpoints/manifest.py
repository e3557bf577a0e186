"""What a checkpoint holds, file by file, so that a half-written or damaged one is recognised."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

MANIFEST = "manifest.json"


def write_manifest(directory: Path, *, step: int) -> None:
    """Writes the size and hash of every file under a directory into its manifest.

    Args:
        directory: the checkpoint, complete but for the manifest.
        step: the step after which it was taken.
    """
    files = {
        str(file.relative_to(directory)): {"size": file.stat().st_size, "sha256": _hash(file)}
        for file in sorted(directory.rglob("*"))
        if file.is_file() and file.name != MANIFEST
    }
    text = json.dumps({"format": 1, "step": step, "files": files}, indent=1)
    (directory / MANIFEST).write_text(text, encoding="utf-8")


def damages(directory: Path) -> Iterator[str]:
    """Yields what is wrong with a checkpoint, in words; nothing when every file is as the manifest says.

    Args:
        directory: the checkpoint.
    """
    try:
        written = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        files = dict(written["files"])
    except FileNotFoundError:
        yield f"{MANIFEST} is missing: it was never finished"
        return
    except (ValueError, KeyError, TypeError):
        yield f"{MANIFEST} cannot be read"
        return
    for name, facts in files.items():
        file = directory / name
        if not file.is_file():
            yield f"{name} is missing"
        elif file.stat().st_size != facts["size"]:
            yield f"{name} has {file.stat().st_size} bytes instead of {facts['size']}"
        elif _hash(file) != facts["sha256"]:
            yield f"{name} has other contents than were written"


def step_of(directory: Path) -> int:
    """Returns the step after which a whole checkpoint was taken."""
    return int(json.loads((directory / MANIFEST).read_text(encoding="utf-8"))["step"])


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
