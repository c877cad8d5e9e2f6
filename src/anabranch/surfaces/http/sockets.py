"""Where a server listens: a socket for each address of a host, or what to change."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anabranch.errors import InputError


def bind(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host, bound; or an error that says what to change."""
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (socket.gaierror, UnicodeError, OverflowError):
        raise InputError(f"there is no address {host!r} to listen on", code="address") from None
    sockets: list[socket.socket] = []
    refused: OSError | None = None
    for family, kind, protocol, _, address in dict.fromkeys(found[:1] if port == 0 else found):
        try:
            sockets.append(_bound(family, kind, protocol, address))
        except OSError as error:
            refused = error
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                break  # a machine without IPv6 has a localhost all the same
    else:
        if sockets:
            return sockets
    for one in sockets:
        one.close()
    assert refused is not None
    raise _cannot_bind(host, port, refused)


@contextmanager
def told_if_in_use(bound: socket.socket) -> Iterator[None]:
    """Begin to listen in here: another process may have bound the port, and listened first."""
    try:
        yield
    except OSError as error:
        host, port = bound.getsockname()[:2]
        raise _cannot_bind(host, port, error) from None


def _bound(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    try:
        if address[1] != 0:  # a port that the system chose is ours from here on, before we listen
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def _cannot_bind(host: str, port: int, error: OSError) -> InputError:
    if error.errno == errno.EADDRINUSE:
        said = f"port {port} of {host} is in use: stop what listens there, or choose another --port"
    elif error.errno == errno.EACCES:
        said = f"port {port} may not be used by this user: choose one above 1023 with --port"
    elif error.errno == errno.EADDRNOTAVAIL:
        said = f"{host} is no address of this machine: choose another --host"
    else:
        said = f"cannot listen on {host} port {port}: {error.strerror}"
    return InputError(said, code="address")
