"""The network connections of process groups, so that a rank blocked in a collective can be released.

A gloo collective waits inside compiled code until its peers answer or hang up, and gloo has no way to call it
off. What ends it is the end of a connection: this module remembers which sockets came with a group and shuts
them down on request.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

_OWN = Path("/proc/self/fd")
_watched: set[str] = set()


def _sockets() -> dict[str, int]:
    """Returns this process's sockets, descriptor by identity; none where the system has no /proc."""
    found: dict[str, int] = {}
    if not _OWN.is_dir():
        return found
    for entry in os.listdir(_OWN):
        with contextlib.suppress(OSError):  # closed in the meantime
            identity = os.readlink(_OWN / entry)
            if identity.startswith("socket:"):
                found[identity] = int(entry)
    return found


@contextlib.contextmanager
def watched_connections() -> Iterator[None]:
    """Remembers the sockets that are opened inside the block."""
    before = set(_sockets())
    try:
        yield
    finally:
        _watched.update(set(_sockets()) - before)


def hang_up() -> int:
    """Shuts the remembered sockets down and returns how many; collectives that use them raise, here and at
    the peers."""
    count = 0
    for identity, descriptor in _sockets().items():
        if identity not in _watched:
            continue
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as same:
            # A listening socket carries no collective, and gloo ends the process when it is closed.
            if not same.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                same.shutdown(socket.SHUT_RDWR)
                count += 1
    _watched.clear()
    return count
