"""Which store the settings name."""

from __future__ import annotations

from anabranch.errors import StoreError
from anabranch.settings import Settings
from anabranch.store.location import MEMORY, on_postgres, require_known_scheme
from anabranch.store.ports import Store


def open_store(settings: Settings, *, read_only: bool = False, new: bool = True) -> Store:
    """Without `new` no schema is made on PostgreSQL where there is none."""
    require_known_scheme(settings.store)
    if settings.store == MEMORY:
        from anabranch.store.memory.store import MemoryStore

        return MemoryStore()
    if on_postgres(settings.store):
        return _open_postgres(settings, read_only=read_only, new=new)
    from anabranch.store.sqlite.store import SqliteStore

    return SqliteStore(settings.store, synchronous=settings.synchronous, read_only=read_only)


def _open_postgres(settings: Settings, *, read_only: bool, new: bool) -> Store:
    try:
        from anabranch.store.postgres.store import PostgresStore
    except ImportError as error:
        if not (error.name or "psycopg").startswith("psycopg"):
            raise
        raise StoreError(
            "a store on PostgreSQL (--store or ANABRANCH_STORE) needs the package psycopg: "
            "pip install 'anabranch[postgres]'",
            code="missing_extra",
        ) from None
    partitions = settings.store_partitions or None
    return PostgresStore(settings.store, read_only=read_only, partitions=partitions, new=new)
