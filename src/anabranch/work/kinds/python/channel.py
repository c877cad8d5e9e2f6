"""The engine's end of the channel to a Python process: frames of a length and a body."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

_CHUNK = 1 << 18


class Channel:
    """Frames come in the order in which they were sent; what is half there waits for its rest."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.socket = end
        self.ended = False  # the process has closed its side
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._at = 0  # in front of this everything was handed out

    async def send(self, body: bytes) -> None:
        await self._loop.sock_sendall(self.socket, len(body).to_bytes(4, "big") + body)

    def say_go_on(self) -> None:
        """One byte, for which there is always room."""
        self.socket.send(b".")

    async def frame(self, most: int) -> bytes:
        """The next frame; an `EOFError` where there will be none."""
        while (found := self.next(most)) is None:
            if self.ended:
                raise EOFError("the process closed the channel")
            self._take(await self._loop.sock_recv(self.socket, _CHUNK))
        return found

    def next(self, most: int) -> bytes | None:
        """The next frame, where all of it was received; a `ValueError` where it is none of ours."""
        received, body = self._received, self._at + 4
        if len(received) < body:
            self._drop()
            return None
        end = body + int.from_bytes(received[self._at : body], "big")
        if end - body > most:
            raise ValueError("not written by the worker")  # the code found the channel
        if len(received) < end:
            self._drop()
            return None
        self._at = end
        return bytes(received[body:end])

    def receive(self) -> None:
        """Take what is there, without waiting."""
        with suppress(BlockingIOError, InterruptedError):
            while not self.ended:
                self._take(self.socket.recv(_CHUNK))

    def shut(self) -> None:
        """From now on nothing that the process sends gets through, and it learns so."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        self.socket.close()

    def _take(self, data: bytes) -> None:
        self._received += data
        self.ended = not data

    def _drop(self) -> None:
        if self._at:
            del self._received[: self._at]
            self._at = 0
