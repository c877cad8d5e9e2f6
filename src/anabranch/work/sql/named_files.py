"""Files that SQL leads to: those that the policy allows, and never the engine's own store."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from glob import has_magic, iglob
from itertools import islice
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from anabranch.errors import InputError
from anabranch.store_files import APPLICATION_ID, refuse_store_file
from anabranch.work.file_policy import SETTING, FileNotAllowed, FilePolicy
from anabranch.work.sql.task import SqlTask

MEMORY = ":memory:"

_QUOTED = re.compile(r"'((?:[^']|'')+)'|\"((?:[^\"]|\"\")+)\"")
_BY_PARAMETER = re.compile(r"\s*ATTACH\s+(DATABASE\s+)?(\?\d*|[:@$]\w+)\s+AS\s", re.IGNORECASE)
_FILES_OF_A_PATTERN = 10_000  # that are looked at
_URI = "file:"
_OPTIONS = {"mode": ("ro", "rw", "rwc", "memory"), "immutable": ("0", "1")}
_TAKEN = " and ".join(f"{option}={'|'.join(values)}" for option, values in _OPTIONS.items())
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f]")
_PLACES_OF_FILES = frozenset({"temp_store_directory", "data_store_directory"})  # pragmas


# -- SQLite ----------------------------------------------------------------------------------


def resolve_sqlite(name: str, allowed: FilePolicy) -> str:
    """What to open in place of the name: the file that it leads to, if that may be. SQLite is given
    no address but those that are written here: it reads one otherwise than we do (`%00`)."""
    if not name.startswith(_URI):
        return name if name in ("", MEMORY) else _resolve(name, allowed)
    path, options = _read_uri(name)
    if path in ("", MEMORY) or options.get("mode") == "memory":
        return MEMORY
    query = "&".join(f"{option}={value}" for option, value in options.items())
    return f"{_URI}{quote(_resolve(path, allowed))}{'?' if query else ''}{query}"


def _resolve(path: str, allowed: FilePolicy) -> str:
    real = allowed.resolve(path)
    refuse_store_file(real)
    return real


def _read_uri(name: str) -> tuple[str, dict[str, str]]:
    """Path and options. What could be read in two ways is refused."""
    rest, _, query = name.removeprefix(_URI).partition("#")[0].partition("?")
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise InputError(f"{name}: a file has no host")
        rest = slash + rest
    try:
        path = unquote(rest, errors="strict")
    except UnicodeDecodeError:
        path = "\0"
    if _BROKEN_ESCAPE.search(rest) or _CONTROL.search(path):
        raise InputError(f"{name!r:.200} is not the address of a file")
    return path, _read_options(query)


def _read_options(query: str) -> dict[str, str]:
    options = dict[str, str]()
    for part in query.split("&") if query else ():
        option, _, value = part.partition("=")
        if option in options or value not in _OPTIONS.get(option, ()):
            raise InputError(f"{part!r:.100} in the address of a SQLite file: it takes {_TAKEN}")
        options[option] = value
    return options


class AttachGuard:
    """Looks at what SQLite is about to attach, also for `VACUUM INTO`, before it opens it."""

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
            if action == sqlite3.SQLITE_PRAGMA and str(name).lower() in _PLACES_OF_FILES and value:
                raise InputError(f"PRAGMA {name} would move files of other tasks too")
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
        if name.startswith(_URI):  # SQLite would read it, and not as we do
            raise InputError(f"ATTACH takes the path of a file here, and no address: {name!r:.200}")
        resolve_sqlite(name, self._allowed)


# -- DuckDB ----------------------------------------------------------------------------------


class DuckDbAccess(msgspec.Struct, frozen=True):
    """What the statements of a task may reach."""

    path: str
    folders: tuple[str, ...] | None = None  # and what is beneath them; None: everything
    files: tuple[str, ...] = ()

    @property
    def fields(self) -> dict[str, Any]:
        return {"path": self.path, "folders": self.folders, "files": self.files}


def duckdb_access(path: str, work: SqlTask, allowed: FilePolicy) -> DuckDbAccess:
    """Where nothing limits the folders, texts in quotes are looked at, and a name that a statement
    puts together is not recognised. Where folders are named, DuckDB holds itself to them; in those
    with files of the engine it gets the files alone that the statements name."""
    in_memory = path.startswith(MEMORY)
    real = path if in_memory else allowed.resolve(_file(path))
    if not in_memory:
        refuse_store_file(real)
    texts = list(_texts(work))
    for text in texts:
        for file in _files(text):
            refuse_store_file(file)
            allowed.refuse_own(file)
    if allowed.roots is None:
        return DuckDbAccess(path)
    folders = tuple(sorted(allowed.free_folders()))
    own = () if in_memory else (real, f"{real}.wal")
    named = {file for text in texts for file in _allowed_files(text, folders, allowed)}
    return DuckDbAccess(real, folders, (*own, *sorted(named)))


def _texts(work: SqlTask) -> Iterator[str]:
    for command in work.commands:
        for single, double in _QUOTED.findall(command.statement.text):
            yield _file(single.replace("''", "'") or double.replace('""', '"'))


def _allowed_files(text: str, folders: tuple[str, ...], allowed: FilePolicy) -> Iterator[str]:
    """Those that the text means, besides what is in the folders. Most texts mean none."""
    if "." not in text and "/" not in text:
        return
    for name in _files(text):
        try:
            real = allowed.resolve(name, write=True)
        except InputError:
            continue  # DuckDB refuses it, if it is meant for a file
        if not any(real.startswith(f"{folder}/") for folder in folders):
            yield real


def _files(name: str) -> Iterator[str]:
    """What DuckDB would open for this name, which may be a pattern."""
    yield name
    if has_magic(name) and "\0" not in name:
        found = iglob(name, recursive=True, include_hidden=True)
        yield from islice(found, _FILES_OF_A_PATTERN)


def _file(name: str) -> str:
    for scheme in ("sqlite:", _URI):
        if name.startswith(scheme):
            name = unquote(name.removeprefix(scheme).partition("?")[0])
            return "/" + name.lstrip("/") if name.startswith("//") else name
    return name


def why_refused(message: str) -> str:
    """What DuckDB says of a file that it may not open, and what decides that."""
    return f"{message} (the setting {SETTING} says which files definitions may name)"
