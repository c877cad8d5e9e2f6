"""Where a server listens: on a port of its own, or with an error that says what to change."""

from __future__ import annotations

import socket

import pytest

from anabranch.errors import InputError
from anabranch.surfaces.http.sockets import bind, told_if_in_use


def test_a_port_that_the_system_chose_is_taken_before_the_server_listens() -> None:
    (ours,) = bind("127.0.0.1", 0)
    with ours, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind(ours.getsockname())


def test_of_two_that_bound_one_port_the_second_to_listen_says_that_it_is_in_use() -> None:
    (first,) = bind("127.0.0.1", 0)
    first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as where the port is given
    port = first.getsockname()[1]
    (second,) = bind("127.0.0.1", port)
    with first, second:
        first.listen()
        said = f"port {port} of 127.0.0.1 is in use"
        with pytest.raises(InputError, match=said), told_if_in_use(second):
            second.listen()
