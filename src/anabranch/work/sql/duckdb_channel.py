"""The engine's end of the channel to the process that runs DuckDB statements."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.work.kind_options import SqlOptions
from anabranch.work.kinds.commands.child_process import ChildProcess, ending, undisturbed
from anabranch.work.kinds.python.performer import as_builtin
from anabranch.work.kinds.threads import Threads
from anabranch.work.sql.duckdb_session import HEAD, HEAD_BYTES, DuckDbReply
from anabranch.work.sql.postgres_login import without_login

_PROGRAM = str(Path(__file__).with_name("duckdb_process.py"))
_BUFFER = 1 << 20
_FAREWELL_SECONDS = 5.0  # for closing files; nothing that is committed depends on it
_GRACE_SECONDS = 1.0
_LARGE_BYTES = 256 * 1024  # a reply beyond that is not decoded in the event loop
_decode = msgspec.msgpack.Decoder(DuckDbReply).decode


class ProcessLost(Exception):
    """The process ended in the middle of a request; the message says how."""


class Channel:
    """Starts the process with the first request, and again when it was lost."""

    def __init__(self, options: SqlOptions, threads: Threads) -> None:
        self._options = options
        self._threads = threads
        self._numbers = itertools.count(1)
        self._starting = asyncio.Lock()
        self._process: _Process | None = None

    def name(self) -> str:
        """A name for what several requests have in common."""
        return f"held-{next(self._numbers)}"

    async def ask(self, **request: Any) -> DuckDbReply:
        """A cancel has stopped the statements when it goes on."""
        number = next(self._numbers)
        data = _frame({"number": number, **request})
        async with self._starting:
            process = self._process
            if process is None or not process.alive:
                if process is not None:
                    await process.close()
                process = self._process = await _Process.start(self._options)
        waiting = process.send(number, data)
        try:
            reply = await asyncio.shield(waiting)
        except asyncio.CancelledError:
            process.send_only(_frame({"number": number}))
            await undisturbed(_until_done(waiting))
            raise
        if len(reply) > _LARGE_BYTES:
            return await self._threads.run(lambda: _decode(reply))
        return _decode(reply)

    async def close(self) -> None:
        if self._process is not None:
            await self._process.close()


class _Process:
    def __init__(
        self, child: ChildProcess, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._child = child
        self._reader, self._writer = reader, writer
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._open = True
        self._hearing = asyncio.create_task(self._hear())

    @classmethod
    async def start(cls, options: SqlOptions) -> _Process:
        encoded = msgspec.json.encode(options).decode()
        env = options.own.without()
        ours, theirs = socket.socketpair()
        try:
            with theirs, open(os.devnull, "wb") as nowhere:
                child = ChildProcess.start(
                    [sys.executable, "-P", "-X", "utf8", _PROGRAM, str(theirs.fileno()), encoded],
                    output=nowhere.fileno(),
                    errors=nowhere.fileno(),
                    env=env if options.login_of_machine else without_login(env),
                    keep=(theirs.fileno(),),
                )
        except BaseException:
            ours.close()
            raise
        return cls(child, *await asyncio.open_connection(sock=ours, limit=_BUFFER))

    @property
    def alive(self) -> bool:
        return self._open and not self._child.ended

    def send(self, number: int, data: bytes) -> asyncio.Future[bytes]:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        self.send_only(data)
        return waiting

    def send_only(self, data: bytes) -> None:
        if self._open:
            self._writer.write(data)

    async def close(self) -> None:
        self._open = False
        self._writer.close()
        await self._hearing

    async def _hear(self) -> None:
        """Hands out replies until the channel is closed, by either end."""
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head = await self._reader.readexactly(HEAD_BYTES)
                number, size = HEAD.unpack(head)
                reply = await self._reader.readexactly(size)
                waiting = self._waiting.pop(number, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(reply)
        self._open = False
        self._writer.close()
        lost = ProcessLost(f"the process that runs DuckDB ended with {ending(await self._ended())}")
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(lost)
                waiting.exception()  # whoever waits is told; where nobody does, nothing is said
        self._waiting.clear()

    async def _ended(self) -> int:
        """It ends by itself when its channel is closed; one that does not is made to."""
        exited = asyncio.ensure_future(self._child.exited())
        await asyncio.wait((exited,), timeout=_FAREWELL_SECONDS)
        return await self._child.stop(_GRACE_SECONDS)


async def _until_done(waiting: asyncio.Future[bytes]) -> None:
    await asyncio.wait((waiting,))


def _frame(request: dict[str, Any]) -> bytes:
    try:
        data = json.dumps(request, default=as_builtin).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"params are not JSON: {error}") from None
    return len(data).to_bytes(4, "big") + data
