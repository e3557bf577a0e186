"""Starting `roll` as a user does, and reading what a run leaves behind."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
TIMING = ("time/", "model_update/")
"""Metrics whose value is a time, or holds one; they differ from run to run."""
MARK = "ROLL_TEST_RUN"
"""Variable of every process of a run: its run directory."""


@dataclass(frozen=True)
class Finished:
    """A run that has ended."""

    directory: Path
    """Its run directory."""
    code: int
    """The exit code."""
    output: str
    """What stood on the terminal."""

    def summary(self) -> dict[str, Any]:  # Any: JSON
        """Returns `summary.json`."""
        found: dict[str, Any] = json.loads((self.directory / "summary.json").read_text())
        return found

    def metrics(self) -> list[dict[str, Any]]:  # Any: JSON
        """Returns the lines of `metrics.jsonl`."""
        return [json.loads(line) for line in (self.directory / "metrics.jsonl").read_text().splitlines()]

    def untimed(self) -> list[dict[str, Any]]:  # Any: JSON
        """Returns the lines of `metrics.jsonl` without times."""
        return [
            {name: value for name, value in row.items() if not name.startswith(TIMING)}
            for row in self.metrics()
        ]

    def checkpoint(self) -> Path:
        """Returns the newest checkpoint."""
        found = (self.directory / "checkpoints").glob("checkpoint-*")
        return max(found, key=lambda path: int(path.name.rpartition("-")[2]))


def command(verb: str, target: Path, *overrides: str) -> list[str]:
    """Returns the command line of `roll`."""
    return [str(Path(sys.executable).with_name("roll")), verb, str(target), *overrides]


def environment(**changes: str) -> dict[str, str]:
    """Returns this process's environment with one thread for each worker."""
    return os.environ | {"OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled"} | changes


def start(verb: str, target: Path, directory: Path, *overrides: str) -> subprocess.Popen[str]:
    """Starts `roll` in a process group of its own, its output in one pipe."""
    arguments = overrides if verb == "resume" else (f"output_dir={directory}", *overrides)
    return subprocess.Popen(
        command(verb, target, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=directory.parent,
        env=environment(**{MARK: str(directory)}),
        start_new_session=True,
    )


def run(verb: str, target: Path, directory: Path, *overrides: str, timeout_s: float = 900) -> Finished:
    """Runs `roll` to its end."""
    process = start(verb, target, directory, *overrides)
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        raise AssertionError(f"the run did not end within {timeout_s} s:\n{output[-4000:]}") from None
    return Finished(directory, process.returncode, output)


def alive(directory: Path, *, patience_s: float = 15.0) -> list[psutil.Process]:
    """Returns the processes that a run left behind, once those that are about to end had the time for it."""
    left = [process for process in psutil.process_iter() if _belongs(process, directory)]
    return list(psutil.wait_procs(left, timeout=patience_s)[1])


def _belongs(process: psutil.Process, directory: Path) -> bool:
    try:
        return process.environ().get(MARK) == str(directory)
    except psutil.Error:
        return False
