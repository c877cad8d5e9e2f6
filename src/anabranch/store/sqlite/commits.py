"""One turn in one transaction, as few and as cheap statements as there can be.

One `executemany` per kind of row of the folded batch; each conditional write must hit exactly one
row, so comparing the totals proves that every run was where the engine believed it to be.
"""

from __future__ import annotations

import sqlite3

from anabranch.store.ports import Batch
from anabranch.store.relational import retention
from anabranch.store.relational.commits import AUDITED, BORN, KEPT, MOVED, Fold, request_rows
from anabranch.store.sqlite import streams
from anabranch.store.sqlite.file import STATEMENTS
from anabranch.store.statements import positional

_CREATE = positional(STATEMENTS["create_head"], BORN)
_LABEL = positional(STATEMENTS["label_run"], ("label", "labelled_at", "labelled_run"))
_MOVE = positional(STATEMENTS["move_head"], MOVED)
_FINISH = positional(STATEMENTS["finish_head"], MOVED)
_APPEND = positional(STATEMENTS["append_record"], ("run", "last_seq", "count", "at", "events"))
_SNAPSHOT = positional(STATEMENTS["replace_snapshot"], ("run", "seq", "state"))
_PAYLOAD = positional(STATEMENTS["put_payload"], ("sha256", "content"))
_SEAL = positional(STATEMENTS["seal"], ("run", "key", "value"))
_UNSEAL = positional(STATEMENTS["unseal"], ("run",))
_PUT_ANSWER = positional(STATEMENTS["put_answer"], KEPT)
_ADD_AUDIT = positional(STATEMENTS["add_audit"], AUDITED)
_POST = positional(STATEMENTS["post"].partition("RETURNING")[0], ("run", "body", "now"))
_LET_RECOVER = positional(STATEMENTS["let_recover"], ("run",))
_ANSWER = positional(STATEMENTS["answer_message"], ("answer", "id"))


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
    if batch.streams and not streams.write(db, batch.streams):
        return False
    for statement, rows in (
        (_LABEL, fold.labelled),
        (_APPEND, fold.records),
        (_SNAPSHOT, list(fold.snapshots.values())),
        (_PAYLOAD, list(batch.payloads.items())),
        (_SEAL, [(run, *item) for run, kept in batch.sealed.items() for item in kept.items()]),
        (_UNSEAL, [(run,) for run in batch.unsealed]),
        (_POST, batch.messages),
        (_LET_RECOVER, [(run,) for run in batch.to_recover]),
    ):
        if rows:
            db.executemany(statement, rows)
    if batch.requests:
        audited, kept = request_rows(batch)
        db.executemany(_ADD_AUDIT, audited)
        db.executemany(_PUT_ANSWER, kept)
    if batch.holds:
        retention.write_holds(db, STATEMENTS, batch.holds)
    if batch.ended:
        retention.write_ends(db, STATEMENTS, batch)
    return True
