"""DBOS: workflows and steps as decorated functions, in SQLite or PostgreSQL."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import measuring
from dbos import DBOS


@DBOS.step()
def nothing() -> None:
    return None


@DBOS.step()
async def give(value: int) -> int:
    return value


@DBOS.workflow()
def chain(steps: int) -> None:
    for _ in range(steps):
        nothing()


@DBOS.workflow()
async def total(count: int) -> int:
    return sum(await asyncio.gather(*(give(value) for value in range(count))))


class Dbos:
    def __init__(self) -> None:
        self._runner = asyncio.Runner()  # one loop for all: DBOS keeps threads of the first

    def one(self) -> None:
        chain(measuring.STEPS_OF_ONE)

    def many(self, runs: int) -> None:
        begun = [DBOS.start_workflow(chain, measuring.STEPS_OF_MANY) for _ in range(runs)]
        for handle in begun:
            handle.get_result()

    def items(self, count: int) -> int:
        return self._runner.run(total(count))

    def hello(self) -> None:
        chain(1)

    def close(self) -> None:
        self._runner.close()


@contextmanager
def servers(variant: str, folder: Path) -> Iterator[str]:
    if variant != "postgres":
        yield ""
        return
    with measuring.postgres(folder) as uri:
        yield uri


@contextmanager
def opened(variant: str, folder: Path, address: str) -> Iterator[Dbos]:
    path = folder / "dbos.sqlite"
    if variant == "wal":
        sqlite3.connect(path).execute("PRAGMA journal_mode = WAL")  # the file keeps it
    url = address or f"sqlite:///{path}"
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()
    peer = Dbos()
    try:
        yield peer
    finally:
        DBOS.destroy()
        peer.close()


if __name__ == "__main__":
    measuring.main(opened, servers)
