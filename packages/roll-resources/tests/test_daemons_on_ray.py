"""Processes of a Ray that was joined: that they have ended is known within seconds."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from roll_resources.on_ray.daemons import Line

OWNER = """
import sys
from roll_resources import ResourceManager
with ResourceManager(num_gpus_per_node=0) as manager:
    manager.start()
    import ray
    from ray._private import worker
    pids = {name: infos[0].process.pid for name, infos in worker._global_node.all_processes.items()}
    print(ray.get_runtime_context().gcs_address, pids["gcs_server"], pids["raylet"], flush=True)
    sys.stdin.read()
"""
GUEST = """
import sys, threading
from roll_resources import ResourceManager
manager = ResourceManager(num_gpus_per_node=0, address=sys.argv[1]).start()
told = None
while True:
    found = manager.ended_daemons()
    if found != told:
        print([name.partition(" ")[0] for name in found], flush=True)
        told = found
    threading.Event().wait(0.1)
"""


@pytest.fixture
def programs() -> Iterator[list[subprocess.Popen[str]]]:
    """Programs that a test has started; what still runs at its end is killed."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for program in reversed(started):
        program.kill()
        program.communicate()


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    environment.pop("RAY_ADDRESS", None)
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment)


def says(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


@pytest.mark.ray
def test_the_end_of_a_joined_rays_processes_is_known_within_five_seconds(
    programs: list[subprocess.Popen[str]],
) -> None:
    programs.append(start(OWNER))
    address, gcs, raylet = says(programs[0]).split()
    programs.append(start(GUEST, address))
    guest = programs[1]
    assert says(guest) == "[]"

    for pid in (gcs, raylet):  # a process that does not answer has not ended
        os.kill(int(pid), signal.SIGSTOP)
    assert guest.stdout is not None
    assert select.select([guest.stdout], [], [], 3.0)[0] == []
    for pid in (gcs, raylet):
        os.kill(int(pid), signal.SIGCONT)

    os.kill(int(gcs), signal.SIGKILL)
    began = time.monotonic()
    assert says(guest) == "['gcs_server']"
    assert time.monotonic() - began < 5.0
    os.kill(int(raylet), signal.SIGKILL)
    began = time.monotonic()
    assert says(guest) == "['raylet', 'gcs_server']"
    assert time.monotonic() - began < 5.0


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def line_to(server: socket.socket, stack: ExitStack, *, refused_s: float = 0.0) -> Line:
    where = server.getsockname()
    line = Line("it", lambda: socket.create_connection(where, timeout=1.0), refused_s=refused_s)
    stack.callback(line.close)
    return line


def test_a_listener_that_answers_nothing_or_hangs_up_has_not_ended(stack: ExitStack) -> None:
    server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    line = line_to(server, stack)
    assert not line.is_dead()
    connection, _ = server.accept()
    connection.sendall(b"some greeting")
    assert not line.is_dead()
    connection.close()
    assert not line.is_dead()


def test_a_listener_that_has_gone_has_ended_once_it_was_refused_for_long_enough(stack: ExitStack) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    quick, patient = line_to(server, stack), line_to(server, stack, refused_s=60.0)
    server.close()
    assert quick.is_dead()
    assert not patient.is_dead()


def test_what_never_listened_has_not_ended(stack: ExitStack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = server.getsockname()
    line = Line("it", lambda: socket.create_connection(where, timeout=1.0), refused_s=0.0)
    assert not line.is_dead()
