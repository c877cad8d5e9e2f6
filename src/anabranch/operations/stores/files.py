"""The file of a store as a whole: copied, put back, made smaller."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import msgspec

from anabranch.errors import InputError
from anabranch.operations.stores.opening import require_kept
from anabranch.settings import Settings
from anabranch.store.location import on_postgres, shown
from anabranch.store.ports import Store
from anabranch.store.sqlite import copy
from anabranch.store.sqlite.copy import Copy, Progress, Restored
from anabranch.store.sqlite.file import schema_of
from anabranch.store.sqlite.store import SqliteStore

Announce = Callable[[Store], AbstractContextManager[None]]

SENT = ".sent"  # what was sent to a chain is remembered in a file of its own
KEY = ".key"  # the key of the store: see `operations.access.secret_key`


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    bytes_before: int
    bytes_after: int


#: What PostgreSQL has for what is done to a file here.
_INSTEAD = {
    "backup": "back it up with pg_dump, or with pg_basebackup and an archive of its log",
    "restore": "put back what pg_dump has written with pg_restore, or a base backup and its log",
    "compact": "autovacuum gives space back, and VACUUM FULL rebuilds a table",
}


def file_of(settings: Settings, verb: str) -> Path:
    """The file of the store; a store in memory has none, and PostgreSQL has tools of its own."""
    require_kept(settings.store)
    if on_postgres(settings.store):
        raise InputError(
            f"store {verb} works on a file, and {shown(settings.store)} is a database of "
            f"PostgreSQL: {_INSTEAD[verb]} (docs/postgres.md)",
            code="usage",
        )
    return Path(os.path.realpath(settings.store))


def backup(
    settings: Settings, target: str, progress: Progress, *, force: bool = False
) -> tuple[Copy, list[str]]:
    """A copy of the store of one moment, and what it does not hold."""
    store = file_of(settings, "backup")
    made = copy.backup(store, Path(os.path.realpath(target)), progress, force=force)
    return made, [
        f"{file}, {purpose}, is not part of the backup: copy it too"
        for file, purpose in files_beside(store, settings).items()
        if file.exists()
    ]


def files_beside(store: Path | str, settings: Settings) -> dict[Path, str]:
    """Files that belong to a store and are not in it, and what each is for."""
    sent = Path(settings.chain_sent) if settings.chain_sent else Path(f"{store}{SENT}")
    key = Path(settings.secret_key_file) if settings.secret_key_file else Path(f"{store}{KEY}")
    return {
        sent: "which keeps transactions from being sent twice",
        key: "from which the secrets of webhooks are made",
    }


def restore(settings: Settings, source: str, progress: Progress) -> tuple[Restored, list[str]]:
    """A backup in the place of the store, and what that means."""
    path = Path(os.path.realpath(source))
    done = copy.restore(path, file_of(settings, "restore"), progress)
    means = [
        "runs started after the backup are gone; its runs repeat what they did since then",
        "webhooks receive again what happened since the backup",
    ]
    if done.tokens_valid_again:
        listed = ", ".join(done.tokens_valid_again)
        means.append(f"tokens revoked since the backup are valid again, revoke them: {listed}")
    if done.tokens_valid_again is None:
        means.append("tokens revoked since the backup are valid again: see `anabranch token list`")
    return done, means


def compact(settings: Settings, announce: Announce = lambda _store: nullcontext()) -> Compacted:
    """Rebuild the file without unused space; from then on a purge gives space back by itself. What
    `announce` gives is entered before anything is done."""
    path = file_of(settings, "compact")
    schema_of(path)
    store = SqliteStore(path)
    try:
        store.acquire("a compaction of the store")
        with announce(store):
            before, after = store.compact()
    finally:
        store.close()
    return Compacted(path=str(path), bytes_before=before, bytes_after=after)
