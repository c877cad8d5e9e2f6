"""A connection to a NATS server, as far as tasks need one: publish, and ask for an answer.

The protocol is lines of text with payloads (docs.nats.io, "client protocol"). One connection serves
one task, which does one thing after another: nothing is shared, and nothing runs beside it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import msgspec

from anabranch.errors import InputError
from anabranch.work.network.addresses import ANY, AddressPolicy

PORT = 4222
SCHEMES = ("nats", "tls")
_LINE_BYTES = 1024 * 1024  # of a line; the greeting of a large cluster is one
#: What one connection may be sent beside its largest message: a hundred thousand keys, say.
_MORE_BYTES = 64 * 1024 * 1024
_HEADERS_BYTES = 64 * 1024  # of one message: each line of them is taken apart
_LINE_COST = 256  # of each line, which takes more memory than its letters
_VERSION = "NATS/1.0"
_NO_RESPONDERS = "503"
_OF_INBOX = "1"  # the subscription that every connection has


class NatsError(Exception):
    """The server refused something; `kind` is that of the fault."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class NoResponders(Exception):
    """Nobody listens to what was asked."""


class NatsLogin(msgspec.Struct, frozen=True, kw_only=True):
    user: str = ""
    password: str = ""
    token: str = ""


class _Info(msgspec.Struct, frozen=True):
    """Of what a server says of itself, what counts here."""

    max_payload: int = 0
    tls_required: bool = False


_read_info: Callable[[str], _Info] = msgspec.json.Decoder(_Info).decode


class NatsMessage(msgspec.Struct, frozen=True):
    subject: str
    payload: bytes
    headers: dict[str, str] = {}
    status: str = ""
    reply: str = ""
    subscription: str = ""


class NatsAddress(msgspec.Struct, frozen=True):
    """Where a server is, and who is asked for in its address."""

    host: str
    port: int
    encrypted: bool
    login: NatsLogin

    def __str__(self) -> str:
        return f"nats {self.host}:{self.port}"


def read_place(url: str) -> NatsAddress:
    """Of `nats://user:password@host:port`; a host alone will do."""
    try:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in SCHEMES:
        raise InputError("url must be the address of a NATS server such as nats://host:4222")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    login = NatsLogin(user=user, password=password) if password else NatsLogin(token=user)
    return NatsAddress(host, port or PORT, parts.scheme == "tls", login)


class NatsConnection:
    """Use it as `async with await NatsConnection.connect(…)`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bytes_max: int
    ) -> None:
        self._reader, self._writer = reader, writer
        self._bytes_max = bytes_max
        self._bytes_left = bytes_max + _MORE_BYTES
        self._subscriptions = {_OF_INBOX}
        self._inbox = f"_INBOX.{secrets.token_hex(11)}"
        self._asked = 0
        self._aside: deque[NatsMessage] = deque()  # came while something else was waited for
        self.payload_max = 1024 * 1024

    @classmethod
    async def connect(
        cls,
        place: NatsAddress,
        login: NatsLogin,
        policy: AddressPolicy = ANY,
        bytes_max: int = 1 << 24,
    ) -> Self:
        reader, writer = await _opened(place, policy)
        made = cls(reader, writer, bytes_max)
        try:
            await made._greet(place, login)
        except BaseException:
            writer.close()
            raise
        return made

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    def inbox(self) -> str:
        """A subject that nobody else has, whose messages come here."""
        self._asked += 1
        return f"{self._inbox}.{self._asked}"

    def listen(self) -> str:
        """The same with a subscription of its own: a stream delivers to nothing less."""
        subject = f"_INBOX.{secrets.token_hex(11)}"
        self._asked += 1
        subscription = str(self._asked + 1)
        self._subscriptions.add(subscription)
        self._writer.write(f"SUB {subject} {subscription}\r\n".encode())
        return subject

    async def publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        """Returns when the server has it."""
        await self._send(subject, "", payload, headers)
        self._writer.write(b"PING\r\n")
        while (line := await self._line()) != "PONG":
            await self._other(line)

    async def request(
        self, subject: str, payload: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> NatsMessage:
        """What somebody answers; `NoResponders` where nobody listens."""
        reply = self.inbox()
        await self._send(subject, reply, payload, headers)
        while True:
            message = await self._next()
            if message.subject == reply:
                if message.status == _NO_RESPONDERS:
                    raise NoResponders(subject)
                return message
            self._put_aside(message)

    async def received(self) -> NatsMessage:
        """The next message to an inbox of ours."""
        while not self._aside:
            self._put_aside(await self._next())
        return self._aside.popleft()

    def _put_aside(self, message: NatsMessage) -> None:
        """For later; what comes to no subscription of ours nobody will ever wait for."""
        if message.subscription in self._subscriptions:
            self._aside.append(message)

    # -- the protocol ------------------------------------------------------------------------

    async def _greet(self, place: NatsAddress, login: NatsLogin) -> None:
        verb, _, text = (await self._line()).partition(" ")
        if verb != "INFO":
            raise NatsError("parse", "it does not greet as a NATS server does")
        info = _greeting(text)
        self.payload_max = info.max_payload or self.payload_max
        if place.encrypted or info.tls_required:
            await self._writer.start_tls(ssl.create_default_context(), server_hostname=place.host)
        options: dict[str, Any] = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "name": "anabranch",
            "lang": "python",
            "version": "1",
            "protocol": 1,
        }
        if login.token:
            options["auth_token"] = login.token
        elif login.user:
            options |= {"user": login.user, "pass": login.password}
        subscription = f"SUB {self._inbox}.> {_OF_INBOX}\r\n"
        self._writer.write(f"CONNECT {json.dumps(options)}\r\n{subscription}PING\r\n".encode())
        while (line := await self._line()) != "PONG":
            await self._other(line)

    async def _send(
        self, subject: str, reply: str, payload: bytes, headers: Mapping[str, str] | None
    ) -> None:
        place = f"{subject} {reply}" if reply else subject
        if headers:
            lines = [_VERSION, *(f"{name}: {text}" for name, text in headers.items()), "", ""]
            head = "\r\n".join(lines).encode()
            sizes, payload = f"{len(head)} {len(head) + len(payload)}", head + payload
            command = f"HPUB {place} {sizes}\r\n"
        else:
            command = f"PUB {place} {len(payload)}\r\n"
        if len(payload) > self.payload_max:
            raise InputError(
                f"a message has {len(payload):,} bytes, and this server takes "
                f"{self.payload_max:,} (its max_payload)"
            )
        self._writer.write(command.encode() + payload + b"\r\n")
        await self._writer.drain()

    async def _line(self) -> str:
        try:
            line = await self._reader.readline()
        except ValueError:
            raise NatsError("parse", f"a line has more than {_LINE_BYTES:,} bytes") from None
        if not line.endswith(b"\n"):
            raise ConnectionResetError("the server closed the connection")
        self._spend(len(line) + _LINE_COST)
        return line.decode("utf-8", "replace").rstrip("\r\n")

    def _spend(self, count: int) -> None:
        """Whatever a server sends, and however it is cut into messages, has an end."""
        self._bytes_left -= count
        if self._bytes_left < 0:
            most = self._bytes_max + _MORE_BYTES
            raise NatsError("result", f"it sends more than {most:,} bytes for one task")

    async def _next(self) -> NatsMessage:
        while True:
            line = await self._line()
            if line.startswith(("MSG ", "HMSG ")):
                return await self._message(line)
            await self._other(line)

    async def _other(self, line: str) -> None:
        """Whatever is no answer."""
        if line.startswith(("MSG ", "HMSG ")):
            self._put_aside(await self._message(line))
        elif line == "PING":
            self._writer.write(b"PONG\r\n")
        elif line.startswith("-ERR"):
            text = line.removeprefix("-ERR").strip().strip("'")
            refused = "authorization" in text.lower() or "permissions" in text.lower()
            raise NatsError("auth" if refused else "client_error", text)

    async def _message(self, line: str) -> NatsMessage:
        verb, *words = line.split(" ")
        try:
            size = int(words[-1])
            head_size = int(words[-2]) if verb == "HMSG" else 0
        except (ValueError, IndexError):
            raise NatsError("parse", f"a line of it cannot be read: {line[:60]!r}") from None
        if not 0 <= head_size <= size or not words[0] or len(words) < 3:
            raise NatsError("parse", f"a line of it cannot be read: {line[:60]!r}")
        if size > self._bytes_max:
            raise NatsError("result", f"a message has more than {self._bytes_max:,} bytes")
        self._spend(size)
        whole = await self._reader.readexactly(size + 2)
        headers, status = read_headers(whole[:head_size])
        reply = words[2] if len(words) > (4 if verb == "HMSG" else 3) else ""
        payload = whole[head_size:size]
        return NatsMessage(words[0], payload, headers, status, reply, subscription=words[1])


def _greeting(text: str) -> _Info:
    try:
        return _read_info(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        raise NatsError("parse", "its greeting cannot be read") from None


def read_headers(head: bytes) -> tuple[dict[str, str], str]:
    """The headers of a message, and its status."""
    if len(head) > _HEADERS_BYTES:
        raise NatsError("result", f"a message has more than {_HEADERS_BYTES:,} bytes of headers")
    first, *lines = head.decode("utf-8", "replace").split("\r\n")
    found = [line.partition(":") for line in lines if line]
    status = first.removeprefix(_VERSION).strip().partition(" ")[0]
    return {name.strip(): text.strip() for name, _, text in found}, status


async def _opened(
    place: NatsAddress, policy: AddressPolicy
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To an address that was looked at, so that the name cannot mean another one by then."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    for one in found:
        policy.check(str(one[4][0]))
    failure: OSError = OSError("there is no address")
    for one in found:
        try:
            return await asyncio.open_connection(
                str(one[4][0]), place.port, family=one[0], limit=_LINE_BYTES
            )
        except OSError as error:
            failure = error
    raise failure
