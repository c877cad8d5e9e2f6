"""What was sent under which key, written down before it is sent.

A transaction is signed, remembered, and only then handed to a node. Whoever repeats the call of a
step (after a crash, after a lost lease) finds it here and sends the very same bytes again, which
a chain takes at most once.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Literal, Protocol

import msgspec
from msgspec.structs import astuple, replace

from anabranch.errors import StoreError
from anabranch.store.private_file import create_private

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sent (
    scope TEXT NOT NULL, key TEXT NOT NULL, tx TEXT NOT NULL, nonce INTEGER NOT NULL,
    raw BLOB NOT NULL, digest TEXT NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('', 'ok', 'reverted')), error TEXT NOT NULL,
    PRIMARY KEY (scope, key)
) WITHOUT ROWID
"""
_COLUMNS = "scope, key, tx, nonce, raw, digest, outcome, error"

Outcome = Literal["", "ok", "reverted"]


class SentCall(msgspec.Struct, frozen=True):
    scope: str  # chain and sender
    key: str  # "session:iteration"
    tx: str
    nonce: int
    raw: bytes
    digest: str  # of what was asked for, to know whether a repetition asks for the same
    outcome: Outcome = ""  # "": not known yet
    error: str = ""

    @property
    def refused(self) -> bool:
        """A node said that it does not take it. Nobody knows whether that is so."""
        return not self.outcome and bool(self.error)


class Sent(Protocol):
    async def find(self, scope: str, key: str) -> SentCall | None: ...

    async def remember(self, call: SentCall) -> SentCall | None:
        """None: it is written, and durable. Otherwise the one that was there already and stays."""
        ...

    async def settle(self, call: SentCall, outcome: Outcome, error: str) -> None: ...

    async def refuse(self, call: SentCall, why: str) -> None:
        """A node has refused to take it, or has said so."""
        ...

    async def replace(self, before: SentCall, call: SentCall) -> bool:
        """Whether this is written in the place of one that was refused; not where another process
        was faster."""
        ...

    async def forget(self, call: SentCall) -> None:
        """For a call that was given to no node."""
        ...


class SentInMemory:
    """For tests and for engines that keep nothing. Forgetting a call would let it be sent twice, so
    it grows with them, as the store in memory does with its runs."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], SentCall] = {}

    async def find(self, scope: str, key: str) -> SentCall | None:
        return self._calls.get((scope, key))

    async def remember(self, call: SentCall) -> SentCall | None:
        there = self._calls.setdefault((call.scope, call.key), call)
        return None if there is call else there

    async def settle(self, call: SentCall, outcome: Outcome, error: str) -> None:
        self._calls[call.scope, call.key] = replace(call, outcome=outcome, error=error)

    async def refuse(self, call: SentCall, why: str) -> None:
        await self.settle(call, "", why)

    async def replace(self, before: SentCall, call: SentCall) -> bool:
        there = self._calls.get((call.scope, call.key))
        if there is None or there.tx != before.tx or there.outcome:
            return False
        self._calls[call.scope, call.key] = call
        return True

    async def forget(self, call: SentCall) -> None:
        self._calls.pop((call.scope, call.key), None)


class SentFile:
    """An SQLite file of its own. Every change is on disk before the call returns."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    async def find(self, scope: str, key: str) -> SentCall | None:
        return await asyncio.to_thread(self._find, scope, key)

    async def remember(self, call: SentCall) -> SentCall | None:
        written = await self._change(
            f"INSERT OR IGNORE INTO sent ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            astuple(call),
        )
        return None if written else await self.find(call.scope, call.key)

    async def settle(self, call: SentCall, outcome: Outcome, error: str) -> None:
        await self._change(
            "UPDATE sent SET outcome = ?, error = ? WHERE scope = ? AND key = ? AND tx = ?",
            (outcome, error, call.scope, call.key, call.tx),
        )

    async def refuse(self, call: SentCall, why: str) -> None:
        await self.settle(call, "", why)

    async def replace(self, before: SentCall, call: SentCall) -> bool:
        changed = await self._change(
            "UPDATE sent SET tx = ?, nonce = ?, raw = ?, digest = ?, outcome = '', error = ''"
            " WHERE scope = ? AND key = ? AND tx = ? AND outcome = ''",
            (call.tx, call.nonce, call.raw, call.digest, call.scope, call.key, before.tx),
        )
        return bool(changed)

    async def forget(self, call: SentCall) -> None:
        await self._change(
            "DELETE FROM sent WHERE scope = ? AND key = ? AND tx = ?",
            (call.scope, call.key, call.tx),
        )

    async def _change(self, statement: str, values: tuple[object, ...]) -> int:
        return await asyncio.to_thread(self._execute, statement, values)

    def _execute(self, statement: str, values: tuple[object, ...]) -> int:
        """The number of rows it changed."""
        try:
            with closing(self._open()) as file, file:
                return file.execute(statement, values).rowcount
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def _find(self, scope: str, key: str) -> SentCall | None:
        try:
            with closing(self._open()) as file:
                row = file.execute(
                    f"SELECT {_COLUMNS} FROM sent WHERE scope = ? AND key = ?", (scope, key)
                ).fetchone()
        except sqlite3.Error as error:
            raise self._unusable(error) from None
        return SentCall(*row) if row is not None else None

    def _open(self) -> sqlite3.Connection:
        create_private(self._path)
        file = sqlite3.connect(self._path, timeout=10)
        try:
            file.execute("PRAGMA synchronous = FULL")
            file.execute(_SCHEMA)
        except BaseException:
            file.close()
            raise
        return file

    def _unusable(self, error: sqlite3.Error) -> StoreError:
        return StoreError(
            f"the record of sent transactions, {self._path}, cannot be used ({error}); "
            "nothing was sent (setting chain_sent)"
        )
