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
from typing import Any, NamedTuple

from anabranch.work.libraries import load

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class Opening(NamedTuple):
    """A file and how it is opened. What statements may reach besides belongs to the open file."""

    path: str
    read_only: bool = False
    folders: tuple[str, ...] | None = None  # None: everything
    files: tuple[str, ...] = ()

    def connect(self) -> Any:
        connection = load("duckdb").connect(self.path, read_only=self.read_only)
        if self.folders is not None:
            if self.folders:
                connection.execute(f"SET allowed_directories={_list(self.folders)}")
            if self.files:
                connection.execute(f"SET allowed_paths={_list(self.files)}")
            connection.execute("SET enable_external_access=false")  # from here on for good
        return connection


def _list(texts: tuple[str, ...]) -> str:
    return "[" + ", ".join("'" + text.replace("'", "''") + "'" for text in texts) + "]"


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
        self._files: dict[Opening, _File] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def use(self, key: Opening, *, tidy: bool) -> AsyncIterator[Any]:
        """A connection of its own to the file; `tidy` when the task leaves nothing behind."""
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

    async def _open(self, key: Opening) -> _File:
        for other, file in tuple(self._files.items()):
            if other.path == key.path and file.users == 0:
                self._close(other)  # DuckDB opens a file in one way at a time
        while self._closing:
            await asyncio.wait(tuple(self._closing))
        if key in self._files:  # somebody was faster
            return self._files[key]
        opening = asyncio.ensure_future(self._in_thread(key.connect))
        file = self._files[key] = _File(opening)
        return file

    def _let_go(self, key: Opening, file: _File) -> None:
        if self._files.get(key) is not file:
            return
        failed = not file.opening.done() or file.opening.exception() is not None
        if failed or file.soiled or self._keep_seconds <= 0:
            self._close(key)
        else:
            loop = asyncio.get_running_loop()
            file.timer = loop.call_later(self._keep_seconds, self._close, key)

    def _close(self, key: Opening) -> None:
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
