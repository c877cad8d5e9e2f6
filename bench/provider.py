"""A process full of providers for the benchmarks: one port, one path a provider.

    POST /<milliseconds>/<price>        answers {"price": …} after so long; a negative time: never
    POST /<milliseconds>/<price>/named  the same, and names the dispatch that it answers

It is written on a bare protocol, so that the client and not the server is measured. On standard
output it says its port; on `GET /log` it tells when each connection was answered and closed, by the
monotonic clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import time

BACKLOG = 4096


class Provider(asyncio.Protocol):
    log: list[tuple[str, str, float]] = []  # path, what happened, when  # noqa: RUF012

    def __init__(self) -> None:
        self._received = bytearray()
        self._path = ""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = bytes(self._received).partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return
        self._received.clear()
        self._path = head.split(b" ", 2)[1].decode()
        if self._path == "/log":
            self._send(json.dumps(self.log).encode())
            return
        self.log.append((self._path, "asked", time.monotonic()))
        milliseconds, price, *named = self._path.strip("/").split("/")
        if int(milliseconds) >= 0:
            loop = asyncio.get_running_loop()
            more = b', "dispatch_id": "%s"' % _dispatch(head) if named else b""
            answer = b'{"status": "offer", "price": %s%s}' % (price.encode(), more)
            self._timer = loop.call_later(int(milliseconds) / 1000, self._send, answer)

    def _send(self, body: bytes) -> None:
        self.log.append((self._path, "answered", time.monotonic()))
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._transport.write(head % len(body) + body)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.log.append((self._path, "closed", time.monotonic()))
        if self._timer is not None:
            self._timer.cancel()


def _dispatch(head: bytes) -> bytes:
    return head.partition(b"Idempotency-Key: ")[2].split(b"\r\n", 1)[0]


def _length(head: bytes) -> int:
    _, found, rest = head.lower().partition(b"content-length:")
    return int(rest.split(b"\r\n", 1)[0]) if found else 0


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Provider, "127.0.0.1", 0, backlog=BACKLOG)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
