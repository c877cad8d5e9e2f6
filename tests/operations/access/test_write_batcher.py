"""Small writes that are made durable together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from anabranch.errors import StoreError
from anabranch.operations.access.write_batcher import WriteBatcher
from anabranch.store.access_ports import AuditEntry, AuditFilter
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Store
from anabranch.store.sqlite.store import SqliteStore
from hangs import HANG_SECONDS

NOW = 1_700_000_000_000


class Counted(MemoryStore):
    """Counts the transactions, and holds up the first until it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.go = Event()

    @contextmanager
    def together(self, *, wipe: bool = False) -> Iterator[None]:
        self.begun += 1
        self.go.wait(HANG_SECONDS)
        with super().together(wipe=wipe):
            yield


def line(action: str) -> AuditEntry:
    return AuditEntry(at=NOW, actor="ann", action=action)


def noting(store: MemoryStore, number: int) -> Callable[[], int]:
    def write() -> int:
        store.add_audit([line(f"a{number}")])
        return number

    return write


def test_what_is_asked_for_while_something_is_written_is_written_together() -> None:
    store = Counted()

    async def go() -> None:
        batcher = WriteBatcher(store)
        first = asyncio.ensure_future(batcher.write(lambda: store.add_audit([line("first")])))
        while not store.begun:
            await asyncio.sleep(0)
        asked = [asyncio.ensure_future(batcher.write(noting(store, n))) for n in range(50)]
        await asyncio.sleep(0)
        assert not first.done()
        store.go.set()
        assert await asyncio.gather(*asked) == list(range(50))
        await batcher.close()

    asyncio.run(go())
    assert store.begun == 2
    written = [entry.action for entry in reversed(store.audit(AuditFilter()))]
    assert written == ["first", *(f"a{n}" for n in range(50))]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_write_that_fails_fails_alone(kind: str, tmp_path: Path) -> None:
    store: Store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "a.db")

    def bad() -> None:
        store.add_audit([line("half")])
        raise StoreError("this one not")

    async def go() -> None:
        batcher = WriteBatcher(store)
        works = [
            lambda: store.add_audit([line("one")]),
            bad,
            lambda: store.add_audit([line("two")]),
        ]
        outcomes = await asyncio.gather(*map(batcher.write, works), return_exceptions=True)
        assert [str(one) for one in outcomes] == ["None", "this one not", "None"]

    asyncio.run(go())
    assert [entry.action for entry in reversed(store.audit(AuditFilter()))] == ["one", "two"]
    store.close()


def test_whoever_leaves_does_not_keep_the_others_from_being_written() -> None:
    store = Counted()

    async def go() -> None:
        batcher = WriteBatcher(store)
        asked = [asyncio.ensure_future(batcher.write(noting(store, n))) for n in range(3)]
        while not store.begun:
            await asyncio.sleep(0)
        asked[1].cancel()
        await asyncio.wait([asked[1]])
        store.go.set()
        await asyncio.gather(asked[0], asked[2])
        await batcher.close()

    asyncio.run(go())
    assert len(store.audit(AuditFilter())) == 3
