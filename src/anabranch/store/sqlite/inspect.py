"""A store as it is at one moment, for whoever checks it: every row, one after the other.

All of it is read in one transaction of one connection, beside whoever writes; nothing is kept in
memory but the row at hand. While it lasts, SQLite cannot shorten the write-ahead log.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from anabranch.store.credential_ports import StoredCredential
from anabranch.store.hook_ports import Hook
from anabranch.store.inspection import Disagreement, Tick
from anabranch.store.ports import Definition, Head, Message, Record, StateSnapshot
from anabranch.store.private_file import exposure
from anabranch.store.record_ports import NamedRecord
from anabranch.store.relational.connection import Row
from anabranch.store.relational.credentials import credential_of
from anabranch.store.relational.hooks import hook_of
from anabranch.store.relational.records import record_of
from anabranch.store.relational.rows import definition_of, head_of, lenient_text, message_of
from anabranch.store.sqlite.file import STATEMENTS, open_reader, prepare, reporting
from anabranch.store.sqlite.held_file import hold
from anabranch.store.sqlite.streams import stream_card_of
from anabranch.store.stream_ports import StreamCard, StreamEvents

PAGE = 500
LINES_MAX = 100  # of what SQLite finds wrong with the file
_STEPS_BETWEEN_CALLS = 100_000  # of SQLite's machine: several times a second


class SqliteInspection:
    """Use it as a context manager. An `unfinished` copy is looked at by the copy that makes it."""

    def __init__(self, path: str | os.PathLike[str], *, unfinished: bool = False) -> None:
        self.path = Path(os.path.realpath(path))
        self.shown = str(self.path)
        self._unfinished = unfinished

    def __enter__(self) -> SqliteInspection:
        self._held = hold(self.path, create=False)
        try:
            if not self._unfinished:
                prepare(self._held, create=False)
            self._db = open_reader(self.path)
        except BaseException:
            self._held.let_go()
            raise
        self._db.text_factory = lenient_text
        self._db.execute("BEGIN")
        return self

    def __exit__(self, *_exc: object) -> None:
        self._db.close()
        self._held.let_go()

    # -- the file ----------------------------------------------------------------------------

    def integrity(self, tick: Tick) -> list[str]:
        """What SQLite finds wrong with the file."""
        given_up: list[BaseException] = []

        def called() -> int:
            try:
                tick()
            except BaseException as error:  # it cannot pass through SQLite
                given_up.append(error)
            return len(given_up)

        self._db.set_progress_handler(called, _STEPS_BETWEEN_CALLS)
        try:
            rows = self._db.execute(f"PRAGMA integrity_check({LINES_MAX})").fetchall()
        except sqlite3.Error as error:
            if given_up:
                raise given_up[0] from None
            return [str(error)]
        finally:
            self._db.set_progress_handler(None, 0)
        return [" ".join(str(line).split()) for (line,) in rows if line != "ok"]

    def notes(self) -> list[str]:
        """What is no damage, and worth knowing."""
        (vacuum,) = self._db.execute("PRAGMA auto_vacuum").fetchone()
        compact = "" if vacuum else (
            "the store was made by an older version, which gives no space back when runs are "
            "purged: `anabranch store compact` changes that"
        )  # fmt: skip
        return [note for note in (exposure(self.path), compact) if note]

    # -- its rows ----------------------------------------------------------------------------

    def count(self, table: str) -> int:
        return int((self._one(f"SELECT count(*) FROM {table}") or (0,))[0])

    def heads(self) -> Iterator[Head]:
        for row in self._in_pages("inspect_heads"):
            yield head_of(row)

    def records(self, run: str) -> Iterator[Record]:
        parameters = {"run": run, "after": -(2**62), "limit": -1}
        with reporting(self.path):
            for row in self._db.execute(STATEMENTS["read"], parameters):
                yield Record(*row)

    def snapshot(self, run: str) -> StateSnapshot | None:
        row = self._one("SELECT seq, state FROM snapshots WHERE run = ?", run)
        return StateSnapshot(*row) if row else None

    def sealed(self, run: str) -> Mapping[str, bytes]:
        with reporting(self.path):
            return dict(self._db.execute(STATEMENTS["sealed"], {"run": run}).fetchall())

    def definitions(self) -> Iterator[Definition]:
        with reporting(self.path):
            for row in self._db.execute(STATEMENTS["inspect_definitions"]):
                yield definition_of(row)

    def has_definition(self, fingerprint: str) -> bool:
        return bool(self._one("SELECT 1 FROM definitions WHERE fingerprint = ?", fingerprint))

    def holders(self, sha256: str, limit: int = 5) -> list[str]:
        """Some of the runs that need this payload."""
        statement = "SELECT DISTINCT run FROM holds WHERE sha256 = ? AND run <> '' LIMIT ?"
        with reporting(self.path):
            return [run for (run,) in self._db.execute(statement, (sha256, limit))]

    def payloads(self) -> Iterator[tuple[str, bytes]]:
        with reporting(self.path):
            yield from self._db.execute("SELECT sha256, content FROM payloads")

    def headless(self, limit: int) -> list[tuple[str, str]]:
        """(table, run) of rows that belong to no run."""
        with reporting(self.path):
            return self._db.execute(STATEMENTS["inspect_headless"], {"limit": limit}).fetchall()

    def holds_on_nothing(self, limit: int) -> list[tuple[str, str]]:
        """(run, sha256) of holds whose payload is not there."""
        with reporting(self.path):
            return self._db.execute(STATEMENTS["inspect_holds"], {"limit": limit}).fetchall()

    def messages(self) -> Iterator[Message]:
        with reporting(self.path):
            for row in self._db.execute(STATEMENTS["unanswered"], {"limit": -1}):
                yield message_of(row)

    def credentials(self) -> list[StoredCredential]:
        with reporting(self.path):
            return [credential_of(row) for row in self._db.execute(STATEMENTS["credentials"])]

    def hooks(self) -> list[Hook]:
        with reporting(self.path):
            return [hook_of(row) for row in self._db.execute(STATEMENTS["hooks"])]

    def has_streams(self) -> bool:
        return True

    def streams(self) -> Iterator[StreamCard]:
        for row in self._in_pages("inspect_streams"):
            yield stream_card_of(row)

    def stream_events(self, stream: str) -> Iterator[StreamEvents]:
        asked = {"stream": stream, "after": -(2**62), "limit": -1}
        with reporting(self.path):
            for row in self._db.execute(STATEMENTS["stream_events"], asked):
                yield StreamEvents(*row)

    def cardless_streams(self, limit: int) -> list[str]:
        statement = STATEMENTS["inspect_cardless_streams"]
        with reporting(self.path):
            return [name for (name,) in self._db.execute(statement, {"limit": limit})]

    def named_records(self) -> Iterator[NamedRecord]:
        with reporting(self.path):
            for row in self._db.execute(STATEMENTS["inspect_records"]):
                yield record_of(row)

    def _in_pages(self, name: str) -> Iterator[Row]:
        """By rowid, in pages: what is read in between must not wait for an open cursor."""
        after = -1
        while True:
            asked = {"after": after, "limit": PAGE}
            with reporting(self.path):
                rows = self._db.execute(STATEMENTS[name], asked).fetchall()
            for after, *row in rows:  # noqa: B007 - the last one is where the next page begins
                yield tuple(row)
            if len(rows) < PAGE:
                return

    def disagreements(self, limit: int) -> list[Disagreement]:
        statement = STATEMENTS["inspect_disagreements"]
        with reporting(self.path):
            rows = self._db.execute(statement, {"limit": limit}).fetchall()
        return [Disagreement(*row) for row in rows]

    def _one(self, statement: str, *values: object) -> Row | None:
        with reporting(self.path):
            row: Row | None = self._db.execute(statement, values).fetchone()
            return row
