"""A batch folded to what it does to each run, and why a batch was refused.

Folded, a batch says for each run the log end it starts from and the head it leaves behind, however
many commits it holds for that run. Which run was not where the engine believed it to be is worked
out only after a refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from anabranch.errors import StoreError
from anabranch.store.checks import answer_refusal, refusal, streams_refusal
from anabranch.store.ports import Batch, Head, Message
from anabranch.store.relational.connection import Row
from anabranch.store.relational.rows import label_rows
from anabranch.store.stream_ports import StreamCard

#: The parameters of `create_head`, and of `move_head` and `finish_head`, in the order of the rows.
BORN = (
    "run", "definition", "name", "dialect", "status", "seq", "created_at", "updated_at",
    "next_wake", "labels", "parent", "origin", "finished", "problems", "reason",
)  # fmt: skip
MOVED = (
    "definition", "dialect", "status", "seq", "updated_at", "next_wake", "problems", "reason",
    "run", "expected", "name", "labels", "created_at", "parent", "origin",
)  # fmt: skip
#: Those of `add_audit` and of `put_answer`.
AUDITED = ("at", "actor", "action", "subject", "outcome", "address", "detail")
KEPT = ("actor", "key", "body", "holder", "expires_at", "status", "answer")


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
        self.runs = list(moves)
        self._sort(moves)

    def _sort(self, moves: dict[str, tuple[int, Head]]) -> None:
        self.born: list[Row] = []
        self.labelled: list[Row] = []
        self.moved: list[Row] = []
        self.finished: list[Row] = []
        for expected, head in moves.values():
            if not expected:
                self.born.append(_born(head))
                if head.labels:
                    self.labelled += label_rows(head.run, head.created_at, head.labels)
            elif head.finished:
                self.finished.append(_moved(head, expected))
            else:
                self.moved.append(_moved(head, expected))


def explain(
    batch: Batch,
    stored_head: Callable[[str], Head | None],
    stored_message: Callable[[int], Message | None],
    stored_stream: Callable[[str], StreamCard | None] | None,
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
    return streams_refusal(batch.streams, stored_stream) if stored_stream else None


def request_rows(batch: Batch) -> tuple[list[Row], list[Row]]:
    """Lines for the audit trail, and answers; of two answers under one key the later counts."""
    audited = [_fields(one.audit, AUDITED) for one in batch.requests if one.audit is not None]
    kept = {(one.kept.actor, one.kept.key): one.kept for one in batch.requests if one.kept}
    return audited, [_fields(one, KEPT) for one in kept.values()]


def _fields(one: object, names: Sequence[str]) -> Row:
    return tuple([getattr(one, name) for name in names])


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
        head.reason,
    )


def _moved(head: Head, expected: int) -> Row:
    return (
        head.definition,
        head.dialect,
        head.status,
        head.seq,
        head.updated_at,
        head.next_wake,
        head.problems,
        head.reason,
        head.run,
        expected,
        head.name,
        _labels(head),
        head.created_at,
        head.parent,
        head.origin,
    )


def _labels(head: Head) -> str:
    return msgspec.json.encode(dict(head.labels)).decode() if head.labels else "{}"
