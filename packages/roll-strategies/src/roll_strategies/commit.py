"""Directories that are there whole or not at all."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from roll_strategies.errors import CheckpointError

MARKER = "COMPLETE.json"


def staging_of(target: Path) -> Path:
    """Returns where a directory is written before it takes its name."""
    return target.with_name(target.name + ".staging")


def start_staging(target: Path) -> Path:
    """Makes an empty staging directory; one that a crash left behind is deleted.

    Raises:
        CheckpointError: the target holds something that is not a checkpoint.
    """
    if target.exists() and any(target.iterdir()) and not (target / MARKER).is_file():
        raise CheckpointError(
            f"{str(target)!r} exists, is not empty and is not a checkpoint (no {MARKER}); save to a "
            "directory of its own"
        )
    staging = staging_of(target)
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    return staging


def finish_staging(target: Path, facts: Mapping[str, object]) -> None:
    """Writes everything through to the disk, marks it, and gives it its name in one step.

    Args:
        target: the directory's final name; a checkpoint that has it already is replaced.
        facts: written into the marker.
    """
    staging = staging_of(target)
    for path in staging.rglob("*"):
        if path.is_file():
            _fsync(path)
    marker = staging / MARKER
    marker.write_text(json.dumps(dict(facts), indent=2))
    _fsync(marker)
    _fsync(staging)
    old = target.with_name(target.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    staging.rename(target)
    _fsync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def read_marker(directory: Path) -> dict[str, object]:
    """Returns the facts of a complete checkpoint.

    Raises:
        CheckpointError: the directory is missing, or was never finished.
    """
    if not directory.is_dir():
        old = directory.with_name(directory.name + ".old")
        hint = f"; {str(old)!r} holds the one before it" if (old / MARKER).is_file() else ""
        raise CheckpointError(f"no checkpoint: directory {str(directory)!r} does not exist{hint}")
    marker = directory / MARKER
    if not marker.is_file():
        raise CheckpointError(
            f"{str(directory)!r} is not a complete checkpoint: {MARKER} is missing, so saving never "
            "finished; use an "
            f"earlier checkpoint"
        )
    facts: dict[str, object] = json.loads(marker.read_text())
    return facts


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
