"""What an actor tells of itself."""

import contextlib
import os
import signal
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
    birth: str
    """When its process began, as the system tells it: with the pid it names one process for good."""
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


def birth_of(pid: int) -> str:
    """Return when a process began, in the system's own terms; empty when there is none or nobody can tell."""
    return _state_and_birth(pid)[1]


def lives(pid: int, birth: str) -> bool:
    """Return whether a process of this machine is still the one that was born then, and has not ended."""
    state, born = _state_and_birth(pid)
    return born == birth and state not in ("", "Z", "X")


def _state_and_birth(pid: int) -> tuple[str, str]:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
            return fields[0], fields[19]
    except (OSError, IndexError):
        return "", ""


def end_process(pid: int, birth: str) -> None:
    """Kill a process of this machine if it is still the one that was born then; a stopped one ends, too."""
    if birth and birth_of(pid) == birth:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
