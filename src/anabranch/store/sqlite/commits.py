"""One turn in one transaction, as few and as cheap statements as there can be.

A batch is first folded to what it does to each run: the log end it starts from and the head it
leaves behind, however many commits it holds for that run. Then one `executemany` per kind of row;
each conditional write must hit exactly one row, so comparing the totals proves that every run was
where the engine believed it to be. Which run was not is worked out only after a refusal.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import msgspec

from anabranch.errors import StoreError
from anabranch.store.checks import answer_refusal, refusal
from anabranch.store.ports import Batch, Head, Message
from anabranch.store.sqlite import retention
from anabranch.store.sqlite.file import STATEMENTS
from anabranch.store.statements import positional

_BORN = (
    "run", "definition", "name", "dialect", "status", "seq", "created_at", "updated_at",
    "next_wake", "labels", "parent", "origin", "finished", "problems",
)  # fmt: skip
_MOVED = (
    "definition", "name", "dialect", "status", "seq", "updated_at", "next_wake", "labels",
    "problems", "run", "expected", "created_at", "parent", "origin",
)  # fmt: skip

_CREATE = positional(STATEMENTS["create_head"], _BORN)
_MOVE = positional(STATEMENTS["move_head"], _MOVED)
_FINISH = positional(STATEMENTS["finish_head"], _MOVED)
_APPEND = positional(STATEMENTS["append_record"], ("run", "last_seq", "count", "at", "events"))
_SNAPSHOT = positional(STATEMENTS["replace_snapshot"], ("run", "seq", "state"))
_PAYLOAD = positional(STATEMENTS["put_payload"], ("sha256", "content"))
_SEAL = positional(STATEMENTS["seal"], ("run", "key", "value"))
_UNSEAL = positional(STATEMENTS["unseal"], ("run",))
_ANSWER = positional(STATEMENTS["answer_message"], ("answer", "id"))

Row = tuple[Any, ...]


class Fold:
    """What a batch does, as rows. `sound` is false when its own commits do not fit together."""

    def __init__(self, batch: Batch) -> None:
        self.records: list[Row] = []
        self.snapshots: dict[str, Row] = {}
        self.sound = True
        moves: dict[str, tuple[int, Head]] = {}
        for commit in batch.commits:
            head = commit.head
            run, seq, count = head.run, head.seq, commit.count
            if run in moves:
                expected, before = moves[run]
                self.sound = self.sound and refusal(before, commit) is None
            else:
                expected = seq - count
                self.sound = self.sound and seq > 0
            moves[run] = expected, head
            if count:
                self.records.append((run, seq, count, commit.at, commit.events))
            if commit.snapshot is not None:
                self.snapshots[run] = (run, seq, commit.snapshot)
        self._sort(moves)

    def _sort(self, moves: dict[str, tuple[int, Head]]) -> None:
        self.born: list[Row] = []
        self.moved: list[Row] = []
        self.finished: list[Row] = []
        for expected, head in moves.values():
            if not expected:
                self.born.append(_born(head))
            elif head.finished:
                self.finished.append(_moved(head, expected))
            else:
                self.moved.append(_moved(head, expected))


def write(db: sqlite3.Connection, fold: Fold, batch: Batch) -> bool:
    """Inside a transaction. False when something was not as expected: roll back."""
    conditional = (
        (_CREATE, fold.born),
        (_MOVE, fold.moved),
        (_FINISH, fold.finished),
        (_ANSWER, [(answer, message_id) for message_id, answer in batch.answers.items()]),
    )
    for statement, rows in conditional:
        if rows and db.executemany(statement, rows).rowcount != len(rows):
            return False
    for statement, rows in (
        (_APPEND, fold.records),
        (_SNAPSHOT, list(fold.snapshots.values())),
        (_PAYLOAD, list(batch.payloads.items())),
        (_SEAL, [(run, *item) for run, kept in batch.sealed.items() for item in kept.items()]),
        (_UNSEAL, [(run,) for run in batch.unsealed]),
    ):
        if rows:
            db.executemany(statement, rows)
    if batch.holds:
        retention.write_holds(db, batch.holds)
    if batch.ended:
        retention.write_ends(db, batch)
    return True


def explain(
    batch: Batch,
    stored_head: Callable[[str], Head | None],
    stored_message: Callable[[int], Message | None],
) -> StoreError | None:
    """Why a batch was refused, in the order in which its parts stand; None if it looks right."""
    heads: dict[str, Head] = {}
    for commit in batch.commits:
        run = commit.head.run
        refused = refusal(heads.get(run) or stored_head(run), commit)
        if refused is not None:
            return refused
        heads[run] = commit.head
    for message_id in batch.answers:
        message = stored_message(message_id)
        if message is None or message.answer is not None:
            return answer_refusal(message_id, known=message is not None)
    return None


def _born(head: Head) -> Row:
    return (
        head.run,
        head.definition,
        head.name,
        head.dialect,
        head.status,
        head.seq,
        head.created_at,
        head.updated_at,
        head.next_wake,
        _labels(head),
        head.parent,
        head.origin,
        head.finished,
        head.problems,
    )


def _moved(head: Head, expected: int) -> Row:
    return (
        head.definition,
        head.name,
        head.dialect,
        head.status,
        head.seq,
        head.updated_at,
        head.next_wake,
        _labels(head),
        head.problems,
        head.run,
        expected,
        head.created_at,
        head.parent,
        head.origin,
    )


def _labels(head: Head) -> str:
    return msgspec.json.encode(dict(head.labels)).decode() if head.labels else "{}"
