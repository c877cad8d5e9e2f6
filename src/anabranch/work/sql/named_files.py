"""Files that SQL leads to: those that the policy allows, and never the engine's own store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from glob import has_magic
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from anabranch.errors import InputError
from anabranch.files import read_limited
from anabranch.store_files import refuse_store_file
from anabranch.work.file_policy import SETTING, FilePolicy
from anabranch.work.sql.globs import ENTRIES_MAX, Patterns, folder_of
from anabranch.work.sql.task import SqlTask
from anabranch.work.sql.whole_folders import KnownFolders, WholeFolders

MEMORY = ":memory:"
URI = "file:"

_QUOTED = re.compile(r"'((?:[^']|'')+)'|\"((?:[^\"]|\"\")+)\"")
_WRITES = re.compile(r"\b(COPY|ATTACH|EXPORT)\b", re.IGNORECASE)
_BESIDE_A_DATABASE = (".wal", ".wal.checkpoint", ".wal.recovery")  # of DuckDB
_OPTIONS = {"mode": ("ro", "rw", "rwc", "memory"), "immutable": ("0", "1")}
_TAKEN = " and ".join(f"{option}={'|'.join(values)}" for option, values in _OPTIONS.items())
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f]")
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_JOURNAL_END_BYTES = 16  # length of the name, checksum, magic
_JOURNALS_BYTES_MAX = 1 << 20
_OF_SEVERAL_JOURNALS = re.compile(r".*-mj[0-9A-F]{9}", re.DOTALL)
_PATH_BYTES_MAX = 4096


# -- SQLite ----------------------------------------------------------------------------------


def resolve_sqlite(name: str, allowed: FilePolicy) -> str:
    """What to open in place of the name: the file that it leads to, if that may be. SQLite is given
    no address but those that are written here: it reads one otherwise than we do (`%00`)."""
    if not name.startswith(URI):
        return name if name in ("", MEMORY) else _resolve_sqlite(name, allowed, write=True)
    path, options = _read_uri(name)
    if path in ("", MEMORY) or options.get("mode") == "memory":
        return MEMORY
    query = "&".join(f"{option}={value}" for option, value in options.items())
    real = _resolve_sqlite(path, allowed, write=options.get("mode") != "ro")
    return f"{URI}{quote(real)}{'?' if query else ''}{query}"


def _resolve_sqlite(path: str, allowed: FilePolicy, *, write: bool) -> str:
    real = _resolve(path, allowed, write=write)
    _refuse_foreign_journal(real, allowed)
    return real


def _resolve(path: str, allowed: FilePolicy, *, write: bool) -> str:
    """A database that is opened to be written is made by that where there is none."""
    real = allowed.resolve(path, write=write)
    allowed.refuse_store(real)
    return real


def _refuse_foreign_journal(database: str, allowed: FilePolicy) -> None:
    """Raises where the journal beside a database leads to files that it may not lead to.

    A transaction over several files leaves a journal for each; they name one more file that says
    which journals belong together. SQLite believes all of it: when it opens a database it opens
    what its journal names, then what stands in there, and removes the former."""
    journal = f"{database}-journal"
    named = ""
    with suppress(OSError):  # there is none, or SQLite cannot read it either
        named = _named_in_journal(journal, allowed)
    if not named or not os.path.lexists(named):
        return
    if not _OF_SEVERAL_JOURNALS.fullmatch(named):
        raise InputError(f"{journal} names {named!r:.200}, which is no journal")
    allowed.resolve(named, write=True)
    names = read_limited(named, _JOURNALS_BYTES_MAX, opening=allowed.open_regular)
    for name in filter(None, names.split(b"\0")):
        _resolve(os.fsdecode(name), allowed, write=True)


def _named_in_journal(journal: str, allowed: FilePolicy) -> str:
    """The file that the end of a journal names."""
    descriptor = allowed.open_regular(journal)
    try:
        size = os.fstat(descriptor).st_size
        start = max(size - _JOURNAL_END_BYTES - _PATH_BYTES_MAX, 0)
        end = os.pread(descriptor, _JOURNAL_END_BYTES + _PATH_BYTES_MAX, start)
    finally:
        os.close(descriptor)
    name, end = end[:-_JOURNAL_END_BYTES], end[-_JOURNAL_END_BYTES:]
    length = int.from_bytes(end[:4], "big")
    if not end.endswith(_JOURNAL_MAGIC) or not 0 < length <= len(name):
        return ""
    return os.fsdecode(name[-length:].partition(b"\0")[0])


def _read_uri(name: str) -> tuple[str, dict[str, str]]:
    """Path and options. What could be read in two ways is refused."""
    rest, _, query = name.removeprefix(URI).partition("#")[0].partition("?")
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


# -- DuckDB ----------------------------------------------------------------------------------


class DuckDbAccess(msgspec.Struct, frozen=True):
    """What the statements of a task may reach."""

    path: str
    folders: tuple[str, ...] | None = None  # and what is beneath them; None: everything
    files: tuple[str, ...] = ()
    hint: str = ""  # for who is refused something

    @property
    def fields(self) -> dict[str, Any]:
        return {"path": self.path, "folders": self.folders, "files": self.files}


def duckdb_access(
    path: str, work: SqlTask, allowed: FilePolicy, known: KnownFolders
) -> DuckDbAccess:
    """Where nothing limits the folders, texts in quotes are looked at, and a name that a statement
    puts together is not recognised. Where folders are named, DuckDB holds itself to them; in those
    that it is not handed whole it gets the files alone that the statements name.

    The database counts as written with `read_only`, too: DuckDB lets statements copy onto it."""
    in_memory = path.startswith(MEMORY)
    real = path if in_memory else _resolve(_file(path), allowed, write=True)
    whole = known.now()
    named = _NamedFiles(allowed, whole)
    files = {file for text, writes in _texts(work) for file in named.of(text, writes=writes)}
    if allowed.roots is None:
        return DuckDbAccess(path)
    if not in_memory:
        beside = (real + suffix for suffix in _BESIDE_A_DATABASE)
        files |= {real, *(_resolve(each, allowed, write=True) for each in beside)}
    return DuckDbAccess(real, whole.folders, tuple(sorted(files)), whole.hint)


class _NamedFiles:
    """Those that texts in the statements of a task mean. Most texts mean none."""

    def __init__(self, allowed: FilePolicy, whole: WholeFolders) -> None:
        self._allowed = allowed
        self._whole = whole
        self._patterns = Patterns(allowed)

    def of(self, text: str, *, writes: bool) -> Iterator[str]:
        """What to hand over besides whole folders; raises for a file of the engine."""
        for name in self._names(text):
            refuse_store_file(name)
            self._allowed.refuse_own(name)
            if self._allowed.roots is not None and ("." in name or "/" in name):
                yield from self._handed(name, writes=writes)

    def _names(self, text: str) -> Iterator[str]:
        """What DuckDB would open for this text, which may be a pattern."""
        yield text
        if not has_magic(text) or self._whole.holds(os.path.realpath(folder_of(text))):
            return
        yield from self._patterns.find(text)
        if self._patterns.exhausted and self._allowed.roots is not None:
            raise InputError(
                f"{text!r:.200} looks at more than {ENTRIES_MAX:,} files, in folders that DuckDB "
                f"is not handed whole: {self._whole.hint}"
            )

    def _handed(self, name: str, *, writes: bool) -> Iterator[str]:
        """With what DuckDB makes beside a file that it replaces or attaches. What is only read has
        to be there."""
        if not writes and not has_magic(name) and not os.path.lexists(name):
            return
        for each in (name, *_beside(name)) if writes else (name,):
            try:
                real = self._allowed.resolve(each, write=True)
            except InputError:
                return  # DuckDB refuses it, if it is meant for a file
            if self._whole.holds(real):
                continue
            self._allowed.refuse_store(real)
            yield real


def _beside(name: str) -> Iterator[str]:
    folder, file = os.path.split(name)
    yield os.path.join(folder, f"tmp_{file}")
    yield from (name + suffix for suffix in _BESIDE_A_DATABASE)


def _texts(work: SqlTask) -> Iterator[tuple[str, bool]]:
    """Those in quotes, and whether the statement may write where they lead."""
    for command in work.commands:
        writes = _WRITES.search(command.statement.text) is not None
        for single, double in _QUOTED.findall(command.statement.text):
            text = single.replace("''", "'") or double.replace('""', '"')
            yield _file(text), writes


def _file(name: str) -> str:
    for scheme in ("sqlite:", URI):
        if name.startswith(scheme):
            name = unquote(name.removeprefix(scheme).partition("?")[0])
            return "/" + name.lstrip("/") if name.startswith("//") else name
    return name


def why_refused(message: str, hint: str) -> str:
    """What DuckDB says of a file that it may not open, and what decides that."""
    words = f"{message} (the setting {SETTING} says which files definitions may name)"
    return f"{words}. {hint}" if hint else words
