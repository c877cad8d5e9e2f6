"""The store that the settings name, opened for work on all of it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from anabranch.errors import InputError, StoreError
from anabranch.settings import Settings
from anabranch.store.inspection import Inspection
from anabranch.store.location import MEMORY, on_postgres
from anabranch.work.libraries import load


def inspect_store(
    settings: Settings, *, unfinished: bool = False
) -> AbstractContextManager[Inspection]:
    """Everything in the store as it is at this moment; an `unfinished` copy only for itself."""
    require_kept(settings.store)
    if on_postgres(settings.store):
        require_driver()
        from anabranch.store.postgres.inspect import PostgresInspection

        return PostgresInspection(settings.store, unfinished=unfinished)
    from anabranch.store.sqlite.inspect import SqliteInspection

    return SqliteInspection(Path(settings.store), unfinished=unfinished)


def require_kept(store: str) -> None:
    if store == MEMORY:
        raise InputError("a store in memory has no file: name one with --store", code="usage")


def require_driver() -> None:
    try:
        load("psycopg")
    except ImportError:
        raise StoreError(
            "a store on PostgreSQL needs the package psycopg: pip install 'anabranch[postgres]'",
            code="missing_extra",
        ) from None
