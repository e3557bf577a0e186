"""The processes of Ray without which no call comes back: which of them have ended."""

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from ray._private import worker
from ray.experimental import internal_kv

VITAL = ("raylet", "gcs_server")
"""Without these no call comes back: what a node runs, and what a cluster knows."""
REFUSED_S = 2.0
"""Seconds over which nobody listens where a gcs_server was, until it counts as ended."""
CONNECT_S = 1.0
STORAGE = ("extra_usage_tag_gcs_storage", "usage_stats")
"""Key and namespace under which a gcs_server tells where it keeps what it knows."""


class Daemons:
    """The vital processes of the Ray that this process is connected to, whoever started them.

    Of a Ray that was started here they are children of this process. Of one that was joined, a connection to
    each is held: the kernel ends it with the process, however busy the machine is, and a slow answer is none.
    """

    def __init__(self) -> None:
        self._node: Any = getattr(worker, "_global_node", None)  # Any: a class of Ray's inside
        self._lock = threading.Lock()
        self._lines: list[Line] = []
        if self._node is not None and not self._node.all_processes:
            self._lines = [_line_to_raylet(self._node.raylet_socket_name)]
            if _forgets_when_it_ends():
                self._lines.append(_line_to_gcs(self._node.gcs_address))

    def ended(self) -> list[str]:
        """Return the names of those that have ended by themselves."""
        if self._node is None:
            return []
        with self._lock:
            joined = [line.name for line in self._lines if line.is_dead()]
        dead = self._node.dead_processes()
        return joined + [f"{name} (pid {process.pid})" for name, process in dead if name in VITAL]

    def close(self) -> None:
        """Hold no connection any more."""
        with self._lock:
            for line in self._lines:
                line.close()
            self._lines = []


class Line:
    """A connection to a process, held to see that it ends; nothing is sent.

    Args:
        name: of the process, for messages.
        connect: makes the connection.
        refused_s: seconds over which a new connection must be refused after the old one has ended.
    """

    def __init__(self, name: str, connect: Callable[[], socket.socket], *, refused_s: float) -> None:
        self.name = name
        self._connect = connect
        self._refused_s = refused_s
        self._refused_since: float | None = None
        self._was_open = False
        self._socket: socket.socket | None = None
        self._open()

    def is_dead(self) -> bool:
        """Return whether the connection has ended and nobody listens any more."""
        if self._socket is not None and _is_open(self._socket):
            return False
        self.close()
        self._open()
        since = self._refused_since
        return self._was_open and since is not None and time.monotonic() - since >= self._refused_s

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _open(self) -> None:
        try:
            self._socket = self._connect()
        except (ConnectionRefusedError, FileNotFoundError):
            self._refused_since = self._refused_since or time.monotonic()
        except OSError:  # late, or out of reach for now: that tells nothing of the process
            self._refused_since = None
        else:
            self._was_open, self._refused_since = True, None
            self._socket.setblocking(False)


def _is_open(connection: socket.socket) -> bool:
    """Return whether the other side still holds a connection; what it says is thrown away."""
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _line_to_raylet(path: str) -> Line:
    def connect() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(CONNECT_S)
        try:
            connection.connect(path)
        except OSError:
            connection.close()
            raise
        return connection

    return Line(f"raylet (of this node, at {path})", connect, refused_s=0.0)


def _line_to_gcs(address: str) -> Line:
    """A name of a service may be refused for a moment while its process is well."""
    host, _, port = address.rpartition(":")
    where = (host.strip("[]"), int(port))
    return Line(
        f"gcs_server (at {address})",
        lambda: socket.create_connection(where, timeout=CONNECT_S),
        refused_s=REFUSED_S,
    )


def _forgets_when_it_ends() -> bool:
    """Return whether the gcs_server keeps what it knows in memory only; from a store it would come back."""
    return internal_kv._internal_kv_get(STORAGE[0], namespace=STORAGE[1]) == b"memory"
