"""Files that are taken from under a server: it stops, says so, and acknowledges nothing more."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.errors import UnusableStore
from anabranch.store.sqlite.store import SqliteStore

from ..support import HELLO, run, serving
from .test_health_and_metrics import reasons, red


def replaced(store: Path) -> None:
    copy = store.with_name("copy")
    shutil.copy(store, copy)
    copy.replace(store)


def overwritten(store: Path) -> None:
    with store.open("r+b") as file:
        file.write(b"\xff" * 100)


HARM: dict[str, tuple[Callable[[Path], object], str]] = {
    "removed": (lambda store: store.unlink(), "is gone"),
    "replaced": (replaced, "was replaced by another file"),
    "cut": (lambda store: os.truncate(store, 8192), "was cut short"),
    "overwritten": (overwritten, "the header of"),
    "log removed": (lambda store: Path(f"{store}-wal").unlink(), "-wal is gone"),
}


@pytest.mark.parametrize("harm", HARM)
def test_an_idle_server_whose_files_are_taken_is_red_and_takes_nothing(
    tmp_path: Path, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.store.sqlite.file_watch._PATIENCE_SECONDS", 0.1)
    do, words = HARM[harm]
    store = tmp_path / "s.db"

    async def work() -> None:
        async with serving(store) as client:
            await client.ended(await client.start(HELLO))
            do(store)
            for query in ("", "?check=live"):
                assert words in reasons(await red(client, words, query))
            reply = await client.post("/runs", {"definition": HELLO})
            assert reply.status == 503, reply.text
            assert words in reply.text or "damaged" in reply.text  # SQLite may meet it first
            assert client.parts.engine.failure is not None

    run(work())


def test_damage_that_a_reader_meets_turns_health_red(tmp_path: Path) -> None:
    store = tmp_path / "s.db"

    async def work() -> None:
        async with serving(store) as client:
            for _ in range(3):
                await client.ended(await client.start(HELLO))
            reader = SqliteStore(store, read_only=True)
            try:
                reader._near.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                with store.open("r+b") as file:  # a lock lost here is another test's matter
                    file.seek(4096)
                    file.write(b"\xff" * (store.stat().st_size - 4096))
                with pytest.raises(UnusableStore, match="damaged"):
                    reader.head("nobody")
            finally:
                reader.close()
            assert "is damaged" in reasons(await red(client, "is damaged"))

    run(work())
