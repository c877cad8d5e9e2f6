"""DuckDB files that stay open for a moment.

Opening a file takes a tenth of a second, far longer than most statements. So a file stays open for
`keep_seconds` after its last task, unless that task did more than read and change rows: attached
databases, settings and secrets belong to the open file, and the next task shall not find them.
While a file is open no other process can write to it.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any, NamedTuple

from anabranch.work.libraries import load

_SETTINGS = "SELECT name FROM duckdb_settings()"
#: What statements may set where DuckDB is limited. Others name files (`log_query_path`), or end the
#: process (`enable_logging` into a file that may not be opened).
_HARMLESS = frozenset(
    {
        "binary_as_string",
        "Calendar",
        "checkpoint_threshold",
        "default_collation",
        "default_null_order",
        "default_order",
        "disable_timestamptz_casts",
        "disabled_optimizers",
        "enable_optimizer",
        "enable_progress_bar",
        "enable_progress_bar_print",
        "error_on_division_by_zero",
        "explain_output",
        "force_compression",
        "ieee_floating_point_ops",
        "integer_division",
        "max_execution_time",
        "max_memory",
        "memory_limit",
        "null_order",
        "operator_memory_limit",
        "order_by_non_integer_literal",
        "partitioned_write_flush_threshold",
        "partitioned_write_max_open_files",
        "pivot_filter_threshold",
        "pivot_limit",
        "preserve_identifier_case",
        "preserve_insertion_order",
        "scalar_subquery_error_on_multiple_rows",
        "threads",
        "TimeZone",
        "wal_autocheckpoint",
        "worker_threads",
    }
)

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
            self._limit(connection, self.folders)
        return connection

    def _limit(self, connection: Any, folders: tuple[str, ...]) -> None:
        """From here on for good: no statement changes what stands here."""
        connection.execute(f"SET temp_directory={_text(_spill_place())}")
        if folders:
            connection.execute(f"SET allowed_directories={_list(folders)}")
        if self.files:
            connection.execute(f"SET allowed_paths={_list(self.files)}")
        connection.execute("SET enable_external_access=false")
        known = {name for (name,) in connection.execute(_SETTINGS).fetchall()}
        connection.execute(f"SET allowed_configs={_list(tuple(sorted(_HARMLESS & known)))}")
        connection.execute("SET lock_configuration=true")


def _spill_place() -> str:
    """Where one database may put what is larger than the memory: DuckDB lets its statements write
    there, so it is neither in the current folder nor that of another."""
    folder = _spill_folder()
    return os.path.join(folder, secrets.token_hex(8)) if folder else ""


@cache
def _spill_folder() -> str:
    """Nobody else reads it, and it goes with the process. Without one nothing is spilled."""
    try:
        folder = tempfile.mkdtemp(prefix="anabranch-duckdb-")
    except OSError:
        return ""
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _list(texts: tuple[str, ...]) -> str:
    return f"[{', '.join(map(_text, texts))}]"


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


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
