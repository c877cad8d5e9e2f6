"""SQL that would open the engine's own store: refused, for the reason that `store_files` gives."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from glob import has_magic, iglob
from itertools import islice
from typing import Any
from urllib.parse import unquote

from anabranch.errors import InputError
from anabranch.store_files import refuse_store_file
from anabranch.work.sql.task import SqlTask

_QUOTED = re.compile(r"'((?:[^']|'')+)'|\"((?:[^\"]|\"\")+)\"")


_BY_PARAMETER = re.compile(r"\s*ATTACH\s+(DATABASE\s+)?(\?\d*|[:@$]\w+)\s+AS\s", re.IGNORECASE)
_FILES_OF_A_PATTERN = 10_000  # that are looked at
_OPENS = frozenset({"ATTACH", "VACUUM"})  # of SQLite; DuckDB opens files in any statement


def refuse_own_store(path: str, work: SqlTask, verbs: frozenset[str] | None = _OPENS) -> None:
    """Looks at the database and at every text in quotes of these verbs, or of all of them.

    A name that a statement puts together is not recognised here: see `AttachGuard` for SQLite.
    """
    refuse_store_file(_file(path))
    for command in work.commands:
        if verbs is None or command.statement.verb in verbs:
            for single, double in _QUOTED.findall(command.statement.text):
                name = _file(single.replace("''", "'") or double.replace('""', '"'))
                for file in [name] if verbs is not None else _files(name):
                    refuse_store_file(file)


class AttachGuard:
    """Looks at what SQLite is about to attach, also for `VACUUM INTO`, before it opens it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._refusal: InputError | None = None
        self._checked = False  # the name is a parameter, and is known to be harmless
        connection.set_authorizer(self._allow)

    def before(self, text: str, params: Any) -> None:
        self._checked = _BY_PARAMETER.match(text) is not None
        if self._checked:
            for value in params.values() if isinstance(params, dict) else params or ():
                refuse_store_file(_file(str(value)))

    def after(self) -> None:
        """Also when the statement failed: says why."""
        if self._refusal is not None:
            raise self._refusal

    def _allow(self, action: int, name: str | None, *_more: str | None) -> int:
        if action == sqlite3.SQLITE_ATTACH:
            try:
                self._look_at(name)
            except InputError as refusal:
                self._refusal = refusal
                return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _look_at(self, name: str | None) -> None:
        if name is not None:
            refuse_store_file(_file(name))
        elif not self._checked:  # SQLite works it out only when it opens the file
            raise InputError(
                "ATTACH does not take an expression here, because it might lead to the store of "
                "this engine: give the file in quotes, or as one parameter"
            )


def _files(name: str) -> Iterator[str]:
    """What DuckDB would open for this name, which may be a pattern."""
    yield name
    if has_magic(name) and "\0" not in name:
        found = iglob(name, recursive=True, include_hidden=True)
        yield from islice(found, _FILES_OF_A_PATTERN)


def _file(name: str) -> str:
    for scheme in ("sqlite:", "file:"):
        if name.startswith(scheme):
            name = unquote(name.removeprefix(scheme).partition("?")[0])
            return "/" + name.lstrip("/") if name.startswith("//") else name
    return name
