"""What SQLite asks before it compiles a statement of an author's: only what is listed is done, and
only files that may be opened are attached."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from anabranch.errors import InputError
from anabranch.store_files import APPLICATION_ID
from anabranch.work.file_policy import FileNotAllowed, FilePolicy
from anabranch.work.sql.guard.sqlite_words import (
    ACTIONS,
    CLOSED_TABLES,
    FUNCTIONS,
    MODULES,
    PRAGMAS,
    READ_PRAGMAS,
)
from anabranch.work.sql.named_files import URI, resolve_sqlite

_BY_PARAMETER = re.compile(r"\s*ATTACH\s+(DATABASE\s+)?(\?\d*|[:@$]\w+)\s+AS\s", re.IGNORECASE)
_ALONE = "because SQLite runs in the process of the engine"
#: For where the authorizer is not asked; Python knows how to set these since 3.12.
_SWITCHES = {
    "SQLITE_DBCONFIG_DEFENSIVE": True,
    "SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER": False,
    "SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION": False,
}


def harden(connection: sqlite3.Connection) -> None:
    """Before anything is read from the file."""
    set_switch = getattr(connection, "setconfig", None)
    if set_switch is not None:
        for name, value in _SWITCHES.items():
            set_switch(getattr(sqlite3, name), value)


class SqliteGuard:
    """Looks at what a statement would do, also for `VACUUM INTO`, before SQLite does it."""

    def __init__(self, connection: sqlite3.Connection, allowed: FilePolicy) -> None:
        self._allowed = allowed
        self._connection = connection
        self._refusal: InputError | None = None
        self._checked = False  # the name is a parameter, and is known to be harmless
        self._attached = False
        connection.set_authorizer(self._allow)

    def before(self, text: str, params: Any) -> None:
        self._checked = _BY_PARAMETER.match(text) is not None
        if self._checked:
            for value in params.values() if isinstance(params, dict) else params or ():
                self._require(str(value))

    def after(self) -> None:
        """Also when the statement failed: says why."""
        if self._refusal is not None:
            raise self._refusal
        if self._attached:
            self._attached = False
            self.refuse_stores()

    def refuse_stores(self) -> None:
        """Also a store that this process does not have open, or a copy of one."""
        for _, schema, file in self._connection.execute("PRAGMA database_list").fetchall():
            quoted = schema.replace('"', '""')
            (found,) = self._connection.execute(f'PRAGMA "{quoted}".application_id').fetchone()
            if found == APPLICATION_ID:
                raise FileNotAllowed(f"{file} is a store of Anabranch, or a copy of one")

    def _allow(self, action: int, name: str | None, value: str | None, *_more: str | None) -> int:
        try:
            if action == sqlite3.SQLITE_ATTACH:
                self._look_at(name)
            else:
                _require_listed(action, (name or "").lower(), value)
        except InputError as refusal:
            self._refusal = refusal
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _look_at(self, name: str | None) -> None:
        self._attached = True
        if name is not None:
            self._require(name)
        elif not self._checked:  # SQLite works it out only when it opens the file
            raise InputError(
                "ATTACH does not take an expression here, because it might lead to the store of "
                "this engine: give the file in quotes, or as one parameter"
            )

    def _require(self, name: str) -> None:
        if name.startswith(URI):  # SQLite would read it, and not as we do
            raise InputError(f"ATTACH takes the path of a file here, and no address: {name!r:.200}")
        resolve_sqlite(name, self._allowed)


def _require_listed(action: int, name: str, value: str | None) -> None:
    if action == sqlite3.SQLITE_PRAGMA:
        _require_pragma(name, value)
    elif action == sqlite3.SQLITE_FUNCTION:
        if str(value).lower() not in FUNCTIONS:
            raise InputError(f"the function {value} cannot be called here, {_ALONE}")
    elif action == sqlite3.SQLITE_CREATE_VTABLE:
        if str(value).lower() not in MODULES:
            raise InputError(f"virtual tables of {value!r:.100} cannot be made here, {_ALONE}")
    elif action not in ACTIONS or name in CLOSED_TABLES:
        raise InputError(f"{name or f'action {action}'} cannot be used here, {_ALONE}")


def _require_pragma(name: str, value: str | None) -> None:
    if name in PRAGMAS or (name in READ_PRAGMAS and value is None):
        return
    what = "only be read" if name in READ_PRAGMAS else "not be used"
    raise InputError(f"PRAGMA {name:.100} can {what} here, {_ALONE}")
