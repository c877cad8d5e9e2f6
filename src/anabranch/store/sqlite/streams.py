"""The streams of a node in a SQLite file: written inside the transaction of a commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from anabranch.store.checks import card_refusal
from anabranch.store.relational.connection import Row
from anabranch.store.sqlite.file import STATEMENTS
from anabranch.store.statements import positional
from anabranch.store.stream_ports import StreamCard, StreamCommit, StreamEvents, StreamFilter

_ALL_ROWS = -1
_MOVED = ("seq", "state", "updated_at", "wake", "stream", "expected", "family", "created_at")
_CREATE = positional(
    STATEMENTS["create_stream"],
    ("stream", "family", "seq", "state", "created_at", "updated_at", "open", "wake", "group_name"),
)
_MOVE = positional(STATEMENTS["move_stream"], (*_MOVED, "open", "group_name"))
_TURN = positional(STATEMENTS["turn_stream"], (*_MOVED[:4], "open", "group_name", *_MOVED[4:]))
_APPEND = positional(
    STATEMENTS["append_stream_events"], ("stream", "last_seq", "count", "at", "events")
)


def write(db: sqlite3.Connection, commits: Sequence[StreamCommit]) -> bool:
    """Inside a transaction. False when a stream is not as expected: roll back."""
    if len({commit.card.stream for commit in commits}) != len(commits):
        return False
    for commit in commits:
        anew = commit.forgets is not None and commit.card.seq != commit.count
        if commit.count < 1 or anew or not _move(db, commit.card, commit.expected):
            return False
    if forgotten := [one.card.stream for one in commits if one.forgets is not None]:
        db.execute(STATEMENTS["forget_stream_events"], _names(forgotten))
    rows = [(one.card.stream, one.card.seq, one.count, one.at, one.events) for one in commits]
    db.executemany(_APPEND, rows)
    return True


def _move(db: sqlite3.Connection, card: StreamCard, expected: int) -> bool:
    """Whether the card stood there; mostly no index changes with it."""
    if not expected:
        return db.execute(_CREATE, _row(card)).rowcount == 1
    moved = (card.seq, card.state, card.updated_at, card.wake)
    where = (card.stream, expected, card.family, card.created_at)
    kept = (card.open, card.group)
    if db.execute(_MOVE, (*moved, *where, *kept)).rowcount == 1:
        return True
    return db.execute(_TURN, (*moved, *kept, *where)).rowcount == 1


def _names(streams: list[str]) -> dict[str, str]:
    return {"streams": msgspec.json.encode(streams).decode()}


def _row(card: StreamCard) -> Row:
    return (
        card.stream,
        card.family,
        card.seq,
        card.state,
        card.created_at,
        card.updated_at,
        card.open,
        card.wake,
        card.group,
    )


def stream_card_of(row: Row) -> StreamCard:
    stream, family, seq, state, created_at, updated_at, is_open, wake, group = row
    return StreamCard(
        stream=stream,
        family=family,
        seq=seq,
        state=state,
        created_at=created_at,
        updated_at=updated_at,
        open=bool(is_open),
        wake=wake,
        group=group,
    )


class SqliteStreams:
    """Reading and forgetting them; `rows` and `transaction` are those of the store."""

    def __init__(
        self,
        rows: Callable[[str, Mapping[str, Any]], list[Row]],
        transaction: Callable[[], AbstractContextManager[sqlite3.Connection]],
    ) -> None:
        self._rows = rows
        self._transaction = transaction

    def stream(self, name: str) -> StreamCard | None:
        rows = self._rows(STATEMENTS["stream"], {"stream": name})
        return stream_card_of(rows[0]) if rows else None

    def streams(self, wanted: StreamFilter) -> list[StreamCard]:
        parts = ["list_streams"]
        given: dict[str, Any] = {"family": wanted.family, "limit": max(wanted.limit, 0)}
        if wanted.group is not None:
            parts.append("list_streams_group" if wanted.group else "list_streams_no_group")
            given["group_name"] = wanted.group
        if wanted.open is not None:
            parts.append("list_streams_open" if wanted.open else "list_streams_closed")
        if wanted.before is not None:
            parts.append("list_streams_before")
            given["before_at"], given["before"] = wanted.before
        parts.append("list_streams_order")
        rows = self._rows("\n".join(STATEMENTS[part] for part in parts), given)
        return [stream_card_of(row) for row in rows]

    def open_streams(self, after: str = "", limit: int = 1000) -> list[StreamCard]:
        given = {"after": after, "limit": max(limit, 0)}
        return [stream_card_of(row) for row in self._rows(STATEMENTS["open_streams"], given)]

    def stream_names(self, after: str = "", limit: int = 1000) -> list[str]:
        given = {"after": after, "limit": max(limit, 0)}
        return [name for (name,) in self._rows(STATEMENTS["stream_names"], given)]

    def stream_events(
        self, name: str, after: int = 0, limit: int | None = None
    ) -> list[StreamEvents]:
        most = _ALL_ROWS if limit is None else max(limit, 0)
        given = {"stream": name, "after": after, "limit": most}
        return [StreamEvents(*row) for row in self._rows(STATEMENTS["stream_events"], given)]

    def renew_cards(self, cards: Sequence[StreamCard]) -> None:
        with self._transaction() as db:
            for card in cards:
                if not _move(db, card, card.seq):
                    db.execute("ROLLBACK")
                    raise card_refusal(card)

    def forget_streams(
        self, family: str, before: int, limit: int = 1000, group: str | None = None
    ) -> int:
        given = {"family": family, "before": before, "limit": max(limit, 0), "group_name": group}
        if not self._rows(STATEMENTS["closed_streams"], {**given, "limit": 1}):
            return 0
        with self._transaction() as db:  # asked again: a commit may have been faster
            names = [name for (name,) in db.execute(STATEMENTS["closed_streams"], given)]
            db.execute(STATEMENTS["forget_stream_events"], _names(names))
            db.execute(STATEMENTS["forget_streams"], _names(names))
        return len(names)
