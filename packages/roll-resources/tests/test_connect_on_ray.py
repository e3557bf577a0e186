import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = """
import sys
from roll_resources import ResourceManager
with ResourceManager(num_gpus_per_node=0).start():
    import ray
    print("at", ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.read()
"""


def start() -> subprocess.Popen[str]:
    """Start a program that reserves from Ray until its standard input closes."""
    return subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=-1, stdout=-1, stderr=-1, text=True)


def address(program: subprocess.Popen[str]) -> str:
    """Return where the program's Ray is."""
    assert program.stdout is not None
    lines = iter(program.stdout.readline, "")
    found = next((line for line in lines if line.startswith("at ")), "at none: the program ended")
    return found.removeprefix("at ").strip()


@pytest.fixture
def ray_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for Ray's files, with a path short enough for its sockets."""
    with tempfile.TemporaryDirectory(
        prefix="r", dir=tempfile.gettempdir(), ignore_cleanup_errors=True
    ) as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        yield Path(folder) / "ray"


@pytest.fixture
def programs() -> Iterator[list[subprocess.Popen[str]]]:
    """Programs that a test has started; what still runs at its end is killed."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for program in started:
        program.kill()
        program.communicate()


@pytest.mark.ray
@pytest.mark.timeout(600)
def test_a_ray_that_somebody_else_started_here_is_not_joined(
    ray_folder: Path, programs: list[subprocess.Popen[str]]
) -> None:
    programs.append(start())
    theirs = address(programs[0])
    # what `ray start` leaves, and ray.init() looks for
    (ray_folder / "ray_current_cluster").write_text(theirs)
    programs.append(start())
    ours = address(programs[1])
    outputs = [program.communicate(timeout=240) for program in programs]
    assert [program.returncode for program in programs] == [0, 0], outputs
    assert ours != theirs


UNDER_UV = """
import subprocess, sys
sys.exit(subprocess.call([{python!r}, "-c", {program!r}]))
"""

PRINT_ENVIRONMENT = """
from roll_resources import ResourceManager
with ResourceManager(num_gpus_per_node=0).start():
    import ray
    print("environment", dict(ray.get_runtime_context().runtime_env))
"""


@pytest.mark.ray
def test_a_driver_under_uv_run_keeps_its_workers_in_its_own_environment(
    ray_folder: Path, tmp_path: Path
) -> None:
    uv = tmp_path / "uv"  # Ray looks for an ancestor whose command line reads `uv run`
    uv.symlink_to(sys.executable)
    (tmp_path / "run").write_text(UNDER_UV.format(python=sys.executable, program=PRINT_ENVIRONMENT))
    done = subprocess.run([uv, "run"], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=True)
    assert "environment {}" in done.stdout


@pytest.mark.ray
@pytest.mark.timeout(600)
def test_a_ray_that_asks_for_a_token_says_how_to_give_it(
    ray_folder: Path, programs: list[subprocess.Popen[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setenv("RAY_gcs_server_port_wait_time_s", "1")  # Ray asks once, not twenty times
    programs.append(start())
    monkeypatch.setenv("RAY_ADDRESS", address(programs[0]))
    programs.append(start())
    _, said = programs[1].communicate(timeout=240)
    assert "ReservationError" in said
    assert "set RAY_AUTH_MODE=token" in said

    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    programs.append(start())
    assert address(programs[2]) == os.environ["RAY_ADDRESS"]
