"""A log of one attempt without an engine, and the rows that would be kept of it."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.store.work_log_ports import LogPiece
from anabranch.work.logs.attempt_log import AttemptLog, LogBatch
from anabranch.work.logs.attempt_logs import AttemptLogs
from anabranch.work.logs.limits import LogLimits
from anabranch.work.secrets.redaction import Redactor

LIMITS = LogLimits()


def a_log(limits: LogLimits = LIMITS, secrets: Sequence[str] = ()) -> AttemptLog:
    scope = Redactor.of_job()
    for secret in secrets:
        scope.learn(secret)
    return AttemptLog(AttemptLogs(limits, now=lambda: 1000), "r1", "1.0", 1, "step", scope)


def pieces(batches: Sequence[LogBatch]) -> list[LogPiece]:
    return [piece for batch in batches for piece in batch.pieces]


def closed(log: AttemptLog) -> list[LogPiece]:
    log.close()
    return pieces(log.take())


def lines(found: Sequence[LogPiece]) -> list[str]:
    return [line for piece in found for line in piece.text.split("\n")]


def kept(batches: Sequence[LogBatch], limits: LogLimits) -> list[LogBatch]:
    """What a store has of these batches, which were written one after the other."""
    rows: list[LogBatch] = []
    for batch in batches:
        rows.append(batch)
        end = batch.start + batch.size - limits.tail
        rows = [
            row for row in rows if row.start < limits.head or row.start + row.size > max(end, 0)
        ]
    return rows
