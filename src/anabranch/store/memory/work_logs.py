"""The part of the memory store that is about what work printed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from anabranch.store.checks import log_conflict
from anabranch.store.memory.part import MemoryPart
from anabranch.store.work_log_ports import Attempt, LogFilter, LogRow, LogState, LogTrim

if TYPE_CHECKING:
    from anabranch.store.ports import Head


class MemoryWorkLogs(MemoryPart):
    if TYPE_CHECKING:
        _heads: dict[str, Head]

    def __init__(self) -> None:
        super().__init__()
        self._work_logs: dict[str, list[LogRow]] = {}

    def append_logs(self, rows: Sequence[LogRow], trims: Sequence[LogTrim] = ()) -> None:
        with self._open():
            known = [row for row in rows if row.run in self._heads]
            taken = {(row.run, row.number) for row in known}
            runs = {row.run for row in known}
            here = {(run, row.number) for run in runs for row in self._work_logs.get(run, ())}
            if len(taken) != len(known) or taken & here:
                raise log_conflict()
            for row in known:
                kept = self._work_logs.setdefault(row.run, [])
                kept.append(row)
                kept.sort(key=lambda one: one.number)
            for trim in trims:
                kept = self._work_logs.get(trim.run, [])
                kept[:] = [row for row in kept if not _trimmed(row, trim)]

    def log_rows(self, wanted: LogFilter) -> list[LogRow]:
        with self._open():
            found = [row for row in self._work_logs.get(wanted.run, ()) if _fits(row, wanted)]
        most = max(wanted.limit, 0)
        return found[len(found) - min(most, len(found)) :] if wanted.newest else found[:most]

    def log_state(self, run: str) -> LogState:
        with self._open():
            rows = list(self._work_logs.get(run, ()))
        ends: dict[Attempt, int] = {}
        for row in rows:
            key = row.job, row.attempt
            ends[key] = max(ends.get(key, 0), row.start + row.size)
        number = rows[-1].number if rows else 0
        return LogState(number, sum(row.size for row in rows), ends)

    def shrink_logs(self, run: str, head: int, tail: int) -> int:
        with self._open():
            rows = self._work_logs.get(run, [])
            total = sum(row.size for row in rows)
            kept, upto = [], 0
            for row in rows:
                since = total - upto
                upto += row.size
                if upto <= head or since <= tail:
                    kept.append(row)
            rows[:] = kept
            return sum(row.size for row in kept)

    def _forget_logs(self, runs: Collection[str]) -> None:
        for run in runs:
            self._work_logs.pop(run, None)

    def _weight_of_logs(self, runs: Collection[str]) -> int:
        return sum(len(row.pieces) for run in runs for row in self._work_logs.get(run, ()))


def _trimmed(row: LogRow, trim: LogTrim) -> bool:
    same = (row.job, row.attempt) == (trim.job, trim.attempt)
    return same and row.start >= trim.begin and row.start + row.size <= trim.end


def _fits(row: LogRow, wanted: LogFilter) -> bool:
    return (
        row.number > wanted.after
        and (wanted.before is None or row.number < wanted.before)
        and (wanted.step is None or row.step == wanted.step)
        and (wanted.job is None or row.job == wanted.job)
        and (wanted.attempt is None or row.attempt == wanted.attempt)
    )
