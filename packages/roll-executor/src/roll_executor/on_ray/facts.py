"""What an actor tells of itself."""

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What an actor tells of itself before its worker is built."""

    node_ip: str
    node_id: str
    pid: int
    control: tuple[str, int]
    """Address of its control channel."""
    master_port: int
    """The port that it holds for the ranks to meet, on rank 0."""
    log_files: tuple[str, ...]
    built: bool
    """Whether it holds a worker already."""


def own_log_files() -> tuple[str, ...]:
    """Return the files to which this process writes its output and errors, where the system can tell."""
    found = []
    for descriptor in (1, 2):
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if path.startswith("/") and os.path.isfile(path):
            found.append(path)
    return tuple(dict.fromkeys(found))
