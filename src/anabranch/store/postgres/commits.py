"""One turn in one transaction: its rows, numbered, as the parts of one statement.

One part moves the numbers of the partitions it writes to, where owner, epoch and number are what
this server believes. That row is locked until the commit, so nobody can take the partition in
between; and a server that has lost it writes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sized
from typing import Any

import msgspec

from anabranch.store.cluster_ports import Owned
from anabranch.store.ports import Batch
from anabranch.store.postgres.cluster import PostgresCluster
from anabranch.store.postgres.connections import Plain
from anabranch.store.postgres.one_statement import Part
from anabranch.store.relational.commits import MOVED, Fold, request_rows
from anabranch.store.relational.connection import Row

_RUN = MOVED.index("run")


class Numbered(msgspec.Struct):
    """The rows of a batch with their places in the partitions."""

    records: list[Row]  # partition, number, run, last_seq, count, at, events
    moves: dict[int, tuple[int, int, int]]  # partition → epoch, number before, number after


def numbered(
    fold: Fold,
    partition_of: Mapping[str, int],
    owned: Mapping[int, Owned],
    answered: Collection[int],
) -> Numbered:
    """`answered` are the partitions of the messages that the batch answers. Only the owner of a run
    does that, so their numbers move as well, by one if no row moves them."""
    moves: dict[int, tuple[int, int, int]] = {}
    records: list[Row] = []
    for partition in {*answered, *(partition_of[run] for run in fold.runs)}:
        at = owned[partition]
        moves[partition] = (at.epoch, at.number, at.number)
    for row in fold.records:
        partition = partition_of[row[0]]
        epoch, before, number = moves[partition]
        moves[partition] = (epoch, before, number + 1)
        records.append((partition, number + 1, *row))
    for partition, (epoch, before, after) in moves.items():
        if before == after:
            moves[partition] = (epoch, before, after + 1)
    return Numbered(records, moves)


def parts_of(
    fold: Fold,
    batch: Batch,
    rows: Numbered,
    partition_of: Mapping[str, int],
    cluster: PostgresCluster,
) -> list[list[Part]]:
    """What is to be written: the parts of one statement, or of two where one must see the other."""
    server = cluster.server
    first = [Part("move_partitions", [(at, server, *move) for at, move in rows.moves.items()])]
    if fold.born:
        first.append(Part("create_heads", [(*row, partition_of[row[0]]) for row in fold.born]))
    if fold.labelled:
        first.append(Part("label_runs", fold.labelled))
    for name, heads in (("move_heads", fold.moved), ("finish_heads", fold.finished)):
        if heads:
            first.append(Part(name, [(*row, partition_of[row[_RUN]]) for row in heads]))
    if rows.records:
        first.append(Part("append_records", rows.records))
    if fold.snapshots:
        first.append(Part("replace_snapshots", list(fold.snapshots.values())))
    if any(_beside_runs(batch)):
        first += _parts_beside_runs(batch, cluster)
    if not batch.ended:
        return [first]
    ends = [(run, now, until) for run, (now, until) in batch.ended.items()]
    last = [Part("end_steps_of", ends), Part("end_execution_of", ends)]
    if batch.holds:  # those of this batch end with the others of their runs
        return [first, last]
    return [[*first, *last]]


def _beside_runs(batch: Batch) -> tuple[Sized, ...]:
    """What most turns have nothing of."""
    return (
        batch.answers,
        batch.payloads,
        batch.sealed,
        batch.unsealed,
        batch.messages,
        batch.holds,
        batch.requests,
        batch.to_recover,
    )


def _parts_beside_runs(batch: Batch, cluster: PostgresCluster) -> list[Part]:
    kept = {run: kept for run, kept in batch.sealed.items() if run not in batch.unsealed}
    audited, answered = request_rows(batch)
    return [
        Part("answer_messages", [(answer, n) for n, answer in batch.answers.items()]),
        Part("put_payloads", sorted(batch.payloads.items())),  # as others do, or both would wait
        Part("seal", [(run, *item) for run, items in kept.items() for item in items.items()]),
        Part("unseal", [(run,) for run in batch.unsealed]),
        Part("post_messages", [(*said, cluster.partition_of(said[0])) for said in batch.messages]),
        Part("hold_all", _holds(batch)),
        Part("add_audits", audited),
        Part("put_answers", answered),
        Part("let_recover", [(run,) for run in batch.to_recover]),
    ]


def _holds(batch: Batch) -> list[Row]:
    """Of holds on the same payload by the same run and scope the longer counts."""
    found: dict[tuple[str, str, str], int] = {}
    for hold in batch.holds:
        key = (hold.sha256, hold.run, hold.scope)
        before = found.get(key, hold.until)
        found[key] = max(before, hold.until) if before and hold.until else 0
    return sorted((*key, until) for key, until in found.items())


class Statements:
    """A connection of psycopg has no `executemany`; its cursors have."""

    def __init__(self, db: Plain) -> None:
        self._db = db

    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None, /) -> Any:
        return self._db.execute(statement, parameters)

    def executemany(self, statement: str, rows: Any, /) -> Any:
        cursor = self._db.cursor()
        given = list(rows)
        if given:
            cursor.executemany(statement, given)
        return cursor
