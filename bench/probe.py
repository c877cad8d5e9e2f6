"""Raw probes: what the machine does without Anabranch, measured beside it."""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

ROW = b"x" * 400


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS probe (id INTEGER PRIMARY KEY, body BLOB)")
    return connection


def commit_seconds(folder: Path, commits: int = 300) -> float:
    """One durable single-row SQLite commit (median)."""
    connection = _connect(folder / "probe.db")
    taken = []
    for _ in range(commits):
        begin = time.perf_counter()
        connection.execute("INSERT INTO probe (body) VALUES (?)", (ROW,))
        taken.append(time.perf_counter() - begin)
    connection.close()
    return statistics.median(taken)


def rows_per_second(folder: Path, rows: int = 20_000) -> float:
    """Rows written in transactions of 1,000: what the disk and SQLite allow at best."""
    connection = _connect(folder / "probe-rows.db")
    begin = time.perf_counter()
    for _ in range(rows // 1000):
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO probe (body) VALUES (?)", [(ROW,)] * 1000)
        connection.execute("COMMIT")
    seconds = time.perf_counter() - begin
    connection.close()
    return rows / seconds


def read_rows_per_second(folder: Path) -> float:
    """Rows read back from the file that `rows_per_second` wrote."""
    connection = _connect(folder / "probe-rows.db")
    begin = time.perf_counter()
    rows = connection.execute("SELECT id, body FROM probe").fetchall()
    seconds = time.perf_counter() - begin
    connection.close()
    return len(rows) / seconds


async def http_seconds(url: str, calls: int, at_once: int) -> float:
    """So many calls with the HTTP client alone, from connections that are open already."""
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call(numbers: Iterator[int]) -> None:
            for _ in numbers:
                async with session.get(url) as response:
                    await response.read()

        async def all_of(count: int) -> None:
            numbers = iter(range(count))
            await asyncio.gather(*(call(numbers) for _ in range(at_once)))

        await all_of(at_once)
        begin = time.perf_counter()
        await all_of(calls)
        return time.perf_counter() - begin
