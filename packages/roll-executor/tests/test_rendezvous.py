"""The port on which ranks meet is nobody else's while it is held."""

import socket
import sys

import pytest

from roll_executor.rendezvous import HeldPort


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the port is not held")
def test_a_held_port_is_given_to_nobody_who_asks_for_any() -> None:
    with HeldPort("127.0.0.1") as held:
        given = set()
        for reuse in (0, 1):
            for _ in range(500):
                with socket.socket() as other:
                    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
                    other.bind(("127.0.0.1", 0))
                    given.add(other.getsockname()[1])
        assert held.port not in given


def test_a_library_can_listen_on_the_held_port() -> None:
    with (
        HeldPort("127.0.0.1") as held,
        socket.create_server(("127.0.0.1", held.port)) as server,
        socket.create_connection(("127.0.0.1", held.port), timeout=5) as client,
    ):
        accepted, _ = server.accept()
        with accepted:
            accepted.sendall(b"hello")
        assert client.recv(5) == b"hello"


def test_two_held_ports_differ_and_letting_go_twice_does_nothing() -> None:
    first, second = HeldPort("127.0.0.1"), HeldPort("127.0.0.1")
    assert first.port != second.port
    first.release()
    first.release()
    second.release()
