"""The port on which the ranks of a cluster meet, held from the moment it is chosen."""

import socket
import sys


class HeldPort:
    """A free TCP port of this machine that nobody else is given while it is held.

    On Linux the holder stays bound without listening: the kernel gives the port to no other process that asks
    for any free one, while a library that binds it by number (with SO_REUSEADDR, as all do) may listen on it.
    Elsewhere the port is let go at once and the usual small race remains.

    Args:
        address: the address to bind.
    """

    def __init__(self, address: str) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket: socket.socket | None = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((address, 0))
        self.port: int = self._socket.getsockname()[1]
        if sys.platform != "linux":
            self.release()

    def __enter__(self) -> "HeldPort":
        return self

    def __exit__(self, *failure: object) -> None:
        self.release()

    def release(self) -> None:
        """Let the port go; twice does nothing."""
        held, self._socket = self._socket, None
        if held is not None:
            held.close()
