"""Which store the settings name."""

from __future__ import annotations

from anabranch.settings import Settings
from anabranch.store.ports import Store


def open_store(settings: Settings, *, read_only: bool = False) -> Store:
    if settings.store == ":memory:":
        from anabranch.store.memory.store import MemoryStore

        return MemoryStore()
    from anabranch.store.sqlite.store import SqliteStore

    return SqliteStore(settings.store, synchronous=settings.synchronous, read_only=read_only)
