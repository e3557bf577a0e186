"""A side door to a busy worker: commands that are answered by a thread of their own."""

import contextlib
import hmac
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from roll_executor.errors import Where
from roll_executor.host import Host
from roll_executor.host import __file__ as host_file
from roll_executor.workers import Health

Reply = dict[str, Any]  # Any: JSON
MAX_BYTES = 4_000_000


class ControlServer:
    """Answers commands about one worker over TCP, from a daemon thread, while the worker is busy.

    Args:
        address: the address to listen on.
        token: only those who send it are answered.
        owner: returns the worker's host, None while it is being built.
    """

    def __init__(self, address: str, *, token: str, owner: Callable[[], Host | None]) -> None:
        self._token = token
        self._owner = owner
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.create_server((address, 0), family=family)
        self.address: tuple[str, int] = (address, self._socket.getsockname()[1])
        threading.Thread(target=self._serve, name="roll-control", daemon=True).start()

    def close(self) -> None:
        """Answer nobody any more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for callers
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError, ValueError):
                connection.settimeout(5.0)
                question = json.loads(_read(connection))
                if hmac.compare_digest(str(question.get("token")), self._token):
                    reply = answer(self._owner(), str(question.get("command")))
                    connection.sendall(json.dumps(reply).encode())


def answer(host: Host | None, command: str) -> Reply:
    """Return the answer to ``status``, ``stacks``, ``abort`` or ``end`` of a worker; None: not built yet."""
    if command == "abort":
        return {"problems": host.abort() if host else []}
    if command == "end":
        return {"problems": host.end() if host else []}
    reply: Reply = {"pid": os.getpid(), "built": host is not None}
    if host is not None:
        now = time.monotonic()
        reply["running"] = [[name, now - since] for name, since in list(host.activity.running.values())]
        reply["idle_s"] = now - host.activity.last_sign
        reply["calls"] = host.activity.calls
        reply["cold"] = host.cold_until is not None
    if command == "stacks":
        reply["stacks"] = stacks()
    return reply


def stacks() -> dict[str, str]:
    """Return the Python stack of every thread of this process but the caller's, by thread name and number."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    me = threading.get_ident()
    return {
        f"{names.get(ident, 'unknown')} ({ident})": "".join(
            traceback.format_list(_own(traceback.extract_stack(frame)))
        )
        for ident, frame in sys._current_frames().items()
        if ident != me
    }


def _own(frames: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Return the frames below our own, when there are any: those of the user's method."""
    ours = [index for index, frame in enumerate(frames) if frame.filename == host_file]
    below = frames[ours[-1] + 1 :] if ours else frames
    return below or frames


def ask(address: tuple[str, int], token: str, command: str, timeout_s: float) -> Reply | None:
    """Return a worker's answer to a command, or None when it does not answer in time."""
    deadline = time.monotonic() + timeout_s
    try:
        with socket.create_connection(address, timeout=timeout_s) as connection:
            connection.sendall(json.dumps({"token": token, "command": command}).encode())
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(max(0.05, deadline - time.monotonic()))
            text = _read(connection)
    except OSError:
        return None
    try:
        reply = json.loads(text)
    except ValueError:
        return None
    return reply if isinstance(reply, dict) else None


def ask_many(
    addresses: Sequence[tuple[str, int]], ranks: Sequence[int], token: str, command: str, timeout_s: float
) -> dict[int, Reply]:
    """Ask several workers at once; those that do not answer are left out."""
    if not ranks:
        return {}
    with ThreadPoolExecutor(max_workers=min(32, len(ranks)), thread_name_prefix="roll-ask") as pool:
        replies = pool.map(lambda rank: ask(addresses[rank], token, command, timeout_s), ranks)
        return {rank: reply for rank, reply in zip(ranks, replies, strict=True) if reply is not None}


def health_of(
    rank: int, where: Where, reply: Reply | None, *, missing: str = "dead", log_files: tuple[str, ...] = ()
) -> Health:
    """Return the health that a worker's answer to ``status`` tells; without one its state is ``missing``."""
    if reply is None:
        return Health(rank=rank, state=missing, where=where, log_files=log_files)
    running = tuple((str(name), float(seconds)) for name, seconds in reply.get("running", []))
    state = "busy" if running else ("cold" if reply.get("cold") else "idle")
    return Health(
        rank=rank,
        state=state,
        where=where,
        running=running,
        idle_s=reply.get("idle_s"),
        calls=int(reply.get("calls", 0)),
        log_files=log_files,
    )


def _read(connection: socket.socket) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := connection.recv(65536):
        parts.append(part)
        size += len(part)
        if size > MAX_BYTES:
            raise ValueError("message too long")
    return b"".join(parts)
