"""Connections to participants: opened within what the process may open, kept where that is safe.

A connection belongs to one participant, with its address and its credentials, and carries one
request at a time. Whatever comes while no request is out ends it. One that is kept is looked at
before the next request goes out: where bytes wait on it, or its end, it is not used. It is kept for
a few seconds, and closed earlier where its place is needed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import aiohappyeyeballs
from aiohttp.abc import AbstractResolver, ResolveResult

from anabranch.work.kinds.threads import Threads
from anabranch.work.network.addresses import AddressPolicy, connector_options
from anabranch.work.participants.http_responses import BrokenResponse, ResponseReader
from anabranch.work.participants.limits import HttpLimits

_LOOK_UPS: Final = 32  # of names, at once
_LOOK_UP_KEPT_SECONDS: Final = 60.0
_NAMES_KEPT: Final = 4096
_SECOND_ADDRESS_SECONDS: Final = 0.25  # after which the next address of a name is tried as well

AddrInfo = tuple[int, int, int, str, Any]


class Disconnected(Exception):
    """The other side ended the connection before the head of a response."""


class Connection(asyncio.Protocol):
    """`gone` is called once, when it is closed for whatever reason."""

    def __init__(self, gone: Callable[[Connection], None]) -> None:
        self._gone = gone
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._reader: ResponseReader | None = None
        self._waiter: asyncio.Future[None] | None = None

    def on(self, sock: socket.socket) -> None:
        """It is open, on this socket."""
        self._socket = sock

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_quiet(self) -> bool:
        """It is open, and nothing has come that nobody asked for: no byte, and not its end."""
        if not self.is_open or self._socket is None:
            return False
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        return False

    async def exchange(self, request: bytes, reader: ResponseReader) -> None:
        """Send the request and read its response to the end."""
        assert self._waiter is None, "one request at a time"
        if self._transport is None:
            raise Disconnected
        self._reader = reader
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            await self._waiter
        finally:
            self._reader = self._waiter = None

    @property
    def all_sent(self) -> bool:
        """The request has left this process: a response before that is one to something else."""
        return self._transport is not None and self._transport.get_write_buffer_size() == 0

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- what the event loop says ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader is None or reader.done:
            if reader is not None:
                reader.feed(data)  # it knows that there was more
            self.close()
            return
        try:
            done = reader.feed(data)
        except Exception as error:  # of the bytes, or of whoever judges them
            self._over(error)
            self.close()
            return
        if done:
            self._over()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._transport = None
        reader = self._reader
        if reader is not None and not reader.done:
            self._over(_ended(reader))
        self._gone(self)

    def _over(self, error: Exception | None = None) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)


def _ended(reader: ResponseReader) -> Exception | None:
    """What it means that the connection is over."""
    if reader.head is None:
        return Disconnected()
    try:
        reader.end()
    except BrokenResponse as error:
        return error
    return None


class Connections:
    """All that are open to participants, never more than `most` (0: any number)."""

    def __init__(self, limits: HttpLimits, policy: AddressPolicy, most: int) -> None:
        self._seconds = limits.connect_seconds
        self._kept_seconds = limits.kept_seconds
        self._most = most
        options = connector_options(policy)
        self._resolver: AbstractResolver = options.get("resolver") or Resolver(self._seconds)
        self._make_socket = options.get("socket_factory")
        self._known: dict[tuple[str, int], tuple[float, list[AddrInfo]]] = {}
        self._look_ups: dict[tuple[str, int], asyncio.Task[list[AddrInfo]]] = {}
        self._open: set[Connection] = set()
        self._places = 0  # of connections that are open or about to be
        self._kept: dict[Connection, asyncio.TimerHandle] = {}  # the one kept longest is first
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def open(self, host: str, port: int, *, tls: bool) -> Connection:
        """A new connection. Raises `OSError` where nobody is there."""
        await self._place()
        connection = Connection(self._gone)
        self._open.add(connection)
        try:
            await self._connect(connection, host, port, tls)
        except BaseException:
            if connection.is_open:
                connection.close()
            else:
                self._gone(connection)
            raise
        return connection

    def keep(self, connection: Connection) -> None:
        """Nobody uses it for now."""
        loop = asyncio.get_running_loop()
        self._kept[connection] = loop.call_later(self._kept_seconds, connection.close)
        if self._waiting:
            self._close_oldest()

    def taken(self, connection: Connection) -> bool:
        """Take one that was kept; False where it must not be used."""
        timer = self._kept.pop(connection, None)
        if timer is None:
            return False
        timer.cancel()
        if connection.is_quiet:
            return True
        connection.close()
        return False

    async def close(self) -> None:
        for task in self._look_ups.values():
            task.cancel()
        for timer in self._kept.values():
            timer.cancel()
        self._kept.clear()
        for connection in list(self._open):
            connection.close()
        await self._resolver.close()
        await asyncio.sleep(0)  # the transports learn that they are closed

    # -- places ------------------------------------------------------------------------------

    async def _place(self) -> None:
        """Wait until one more may be open."""
        if self._most and self._places >= self._most:
            self._close_oldest()
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except BaseException:
                if turn.done() and not turn.cancelled():  # given to one that has just been stopped
                    self._give_back()
                raise
            return
        self._places += 1

    def _close_oldest(self) -> None:
        """Make room: whoever uses a connection needs it more than one who may do so later."""
        oldest = next(iter(self._kept), None)
        if oldest is not None:
            self._kept.pop(oldest).cancel()
            oldest.close()

    def _gone(self, connection: Connection) -> None:
        if connection not in self._open:
            return
        self._open.remove(connection)
        timer = self._kept.pop(connection, None)
        if timer is not None:
            timer.cancel()
        self._give_back()

    def _give_back(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)  # the place passes to it
                return
        self._places -= 1

    # -- connecting --------------------------------------------------------------------------

    async def _connect(self, connection: Connection, host: str, port: int, tls: bool) -> None:
        loop = asyncio.get_running_loop()
        found = await self._addresses(host, port)
        try:
            async with asyncio.timeout(self._seconds):
                sock = await aiohappyeyeballs.start_connection(
                    found,
                    happy_eyeballs_delay=_SECOND_ADDRESS_SECONDS,
                    socket_factory=self._make_socket,
                )
                connection.on(sock)
                await loop.create_connection(
                    lambda: connection,
                    sock=sock,
                    ssl=_tls() if tls else None,
                    server_hostname=host.rstrip(".") if tls else None,
                )
        except TimeoutError:
            raise OSError(None, f"no connection within {self._seconds:g} s") from None

    async def _addresses(self, host: str, port: int) -> list[AddrInfo]:
        literal = _literal(host, port)
        if literal is not None:
            return [literal]
        key = host, port
        until, found = self._known.get(key, (0.0, []))
        if until > time.monotonic():
            return found
        task = self._look_ups.get(key)
        if task is None:  # those who ask for the same name share one look-up
            task = self._look_ups[key] = asyncio.ensure_future(self._look_up(host, port))
            task.add_done_callback(lambda done: self._looked_up(key, done))
        return await asyncio.shield(task)

    async def _look_up(self, host: str, port: int) -> list[AddrInfo]:
        try:
            async with asyncio.timeout(self._seconds):
                found = await self._resolver.resolve(host, port, socket.AF_UNSPEC)
        except TimeoutError:
            raise OSError(None, f"no address of {host} within {self._seconds:g} s") from None
        return [
            (one["family"], socket.SOCK_STREAM, one["proto"], "", (one["host"], one["port"]))
            for one in found
        ]

    def _looked_up(self, key: tuple[str, int], done: asyncio.Task[list[AddrInfo]]) -> None:
        self._look_ups.pop(key, None)
        if done.cancelled() or done.exception() is not None:
            return
        if len(self._known) >= _NAMES_KEPT:
            self._known.clear()
        self._known[key] = time.monotonic() + _LOOK_UP_KEPT_SECONDS, done.result()


def _literal(host: str, port: int) -> AddrInfo | None:
    """An address that needs no looking up."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    return family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (str(address), port)


@cache
def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class Resolver(AbstractResolver):
    """Names to addresses, within a time limit and without a hold on the end of the program.

    A look-up blocks a thread and cannot be stopped. So it is done in daemon threads of our own, and
    one that hangs keeps nobody from leaving.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._threads = Threads(_LOOK_UPS, close_seconds=0.1)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        def look_up() -> list[ResolveResult]:
            found = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG
            )
            return [
                ResolveResult(
                    hostname=host,
                    host=str(address[0]),
                    port=int(address[1]),
                    family=kind,
                    proto=protocol,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
                for kind, _, protocol, _, address in found
            ]

        try:
            async with asyncio.timeout(self._seconds):
                return await self._threads.run(look_up)
        except TimeoutError:
            raise OSError(None, f"no address of {host} within {self._seconds:g} s") from None
        except UnicodeError:  # a name that no address can have
            raise OSError(None, f"{host[:80]!r} is no name of a host") from None

    async def close(self) -> None:
        await self._threads.close()
