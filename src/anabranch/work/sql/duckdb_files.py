"""DuckDB files that stay open for a moment.

Opening a file takes a tenth of a second, far longer than most statements. So a file stays open for
`keep_seconds` after its last task, unless that task did more than read and change rows: attached
databases, settings and secrets belong to the open file, and the next task shall not find them.
While a file is open no other process can write to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from anabranch.work.libraries import load

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
_Key = tuple[str, bool]


class _File:
    def __init__(self, opening: asyncio.Future[Any]) -> None:
        self.opening = opening
        self.users = 0
        self.soiled = False
        self.timer: asyncio.TimerHandle | None = None


class OpenFiles:
    def __init__(self, in_thread: InThread, keep_seconds: float) -> None:
        self._in_thread = in_thread
        self._keep_seconds = keep_seconds
        self._files: dict[_Key, _File] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def use(self, path: str, read_only: bool, *, tidy: bool) -> AsyncIterator[Any]:
        """A connection of its own to the file; `tidy` when the task leaves nothing behind."""
        key = (path, read_only)
        file = self._files.get(key) or await self._open(key)
        file.users += 1
        if file.timer is not None:
            file.timer.cancel()
        try:
            base = await asyncio.shield(file.opening)
            yield base.cursor()
        finally:
            file.users -= 1
            file.soiled = file.soiled or not tidy
            if file.users == 0:
                self._let_go(key, file)

    async def close(self) -> None:
        for key in tuple(self._files):
            self._close(key)
        while self._closing:
            await asyncio.wait(tuple(self._closing))

    async def _open(self, key: _Key) -> _File:
        path, read_only = key
        other = self._files.get((path, not read_only))
        if other is not None and other.users == 0:  # DuckDB opens a file in one way at a time
            self._close((path, not read_only))
        while self._closing:
            await asyncio.wait(tuple(self._closing))
        if key in self._files:  # somebody was faster
            return self._files[key]
        opening = asyncio.ensure_future(self._in_thread(lambda: _connect(path, read_only)))
        file = self._files[key] = _File(opening)
        return file

    def _let_go(self, key: _Key, file: _File) -> None:
        if self._files.get(key) is not file:
            return
        failed = not file.opening.done() or file.opening.exception() is not None
        if failed or file.soiled or self._keep_seconds <= 0:
            self._close(key)
        else:
            loop = asyncio.get_running_loop()
            file.timer = loop.call_later(self._keep_seconds, self._close, key)

    def _close(self, key: _Key) -> None:
        file = self._files.pop(key, None)
        if file is None:
            return
        if file.timer is not None:
            file.timer.cancel()
        closing = asyncio.get_running_loop().create_task(self._closed(file))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _closed(self, file: _File) -> None:
        with suppress(Exception):  # it could not be opened; whoever wanted it was told
            base = await file.opening
            await self._in_thread(base.close)


def _connect(path: str, read_only: bool) -> Any:
    return load("duckdb").connect(path, read_only=read_only)
