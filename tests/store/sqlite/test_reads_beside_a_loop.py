"""A read of a thread beside the event loop, however long it takes, keeps the loop from nothing."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from anabranch.errors import StoreError
from anabranch.runtime.slices import Slices
from anabranch.store.sqlite.store import SqliteStore
from hangs import HANG_SECONDS
from in_loop import in_loop


class Held:
    """A read of another thread that does not end before it is let go."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.begun, self._end = threading.Event(), threading.Event()

    def read(self) -> None:
        with self._store._view() as db:
            db.create_function("hold", 0, self._hold)
            db.execute("SELECT hold()").fetchall()

    def _hold(self) -> int:
        self.begun.set()
        assert self._end.wait(HANG_SECONDS)
        return 1

    def let_go(self) -> None:
        self._end.set()


@in_loop
async def test_the_loop_and_its_turns_read_while_a_thread_reads_on(tmp_path: Path) -> None:
    store, slices = SqliteStore(tmp_path / "store.db"), Slices()
    held = Held(store)
    reading = asyncio.ensure_future(asyncio.to_thread(held.read))
    try:
        async with asyncio.timeout(HANG_SECONDS):
            await asyncio.to_thread(held.begun.wait)
        assert store.head("nobody") is None
        assert await slices.do(lambda: store.head("nobody")) is None
        assert not reading.done()
    finally:
        held.let_go()
        await reading
        slices.close()
        store.close()


@in_loop
async def test_a_store_that_is_closed_waits_for_the_reads_of_threads(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    held = Held(store)
    reading = asyncio.ensure_future(asyncio.to_thread(held.read))
    await asyncio.to_thread(held.begun.wait)
    closing = asyncio.ensure_future(asyncio.to_thread(store.close))
    held.let_go()
    await asyncio.gather(reading, closing)
    with pytest.raises(StoreError, match="is closed"):
        await asyncio.to_thread(store.head, "nobody")
    assert store._far is not None
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        store._far.db.execute("SELECT 1")
