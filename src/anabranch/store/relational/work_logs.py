"""The part of a relational store that is about what work printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from anabranch.errors import StoreError
from anabranch.store.checks import log_conflict
from anabranch.store.relational.connection import Connection, RelationalPart
from anabranch.store.relational.errors import CONSTRAINT
from anabranch.store.work_log_ports import Attempt, LogFilter, LogRow, LogState, LogTrim

_CONDITIONS = ("before", "step", "job", "attempt")


class RelationalWorkLogs(RelationalPart):
    def append_logs(self, rows: Sequence[LogRow], trims: Sequence[LogTrim] = ()) -> None:
        try:
            with self._transaction() as db:
                self._write_logs(db, rows, trims)
        except StoreError as error:
            if error.code == CONSTRAINT:
                raise log_conflict() from None
            raise

    def _write_logs(self, db: Connection, rows: Sequence[LogRow], trims: Sequence[LogTrim]) -> None:
        if rows:
            db.executemany(self.sql["append_logs"], [msgspec.structs.asdict(row) for row in rows])
        if trims:
            db.executemany(self.sql["trim_logs"], [msgspec.structs.asdict(one) for one in trims])

    def log_rows(self, wanted: LogFilter) -> list[LogRow]:
        given: dict[str, Any] = {"run": wanted.run, "after": wanted.after}
        parts = ["list_logs"]
        for name in _CONDITIONS:
            if (value := getattr(wanted, name)) is not None:
                parts.append(f"list_logs_{name}")
                given[name] = value
        parts.append("list_logs_newest" if wanted.newest else "list_logs_order")
        given["limit"] = max(wanted.limit, 0)
        rows = self._rows("\n".join(self.sql[part] for part in parts), given)
        return [log_row_of(row) for row in (reversed(rows) if wanted.newest else rows)]

    def log_state(self, run: str) -> LogState:
        ends: dict[Attempt, int] = {}
        number = size = 0
        for job, attempt, end, bytes_of, last in self._rows(self.sql["log_state"], {"run": run}):
            ends[job, attempt] = int(end)
            number, size = max(number, last), size + int(bytes_of)
        return LogState(number, size, ends)

    def shrink_logs(self, run: str, head: int, tail: int) -> int:
        with self._transaction() as db:
            db.execute(self.sql["shrink_logs"], {"run": run, "head": head, "tail": tail})
            return int(db.execute(self.sql["log_size"], {"run": run}).fetchone()[0])


def log_row_of(row: Sequence[Any]) -> LogRow:
    run, number, job, attempt, step, first_line, lines, start, size, at, pieces = row
    return LogRow(
        run=run,
        number=number,
        job=job,
        attempt=attempt,
        step=step,
        first_line=first_line,
        lines=lines,
        start=start,
        size=size,
        at=at,
        pieces=bytes(pieces),
    )
