"""The part of the store suite that is about what work printed."""

from __future__ import annotations

from typing import Any

import msgspec

from anabranch.errors import Conflict
from anabranch.store.ports import Store
from anabranch.store.work_log_ports import LogFilter, LogPiece, LogRow, LogState, LogTrim
from anabranch.testing.store_suite.samples import NOW, a_batch, a_commit, refused


def a_log_row(run: str, number: int, text: str = "hello", **changes: Any) -> LogRow:
    piece = LogPiece(NOW, "stdout", "info", -1, text)
    plain = LogRow(
        run=run,
        number=number,
        job="j1",
        attempt=1,
        step="fetch",
        first_line=number - 1,
        lines=1,
        start=10 * (number - 1),
        size=10,
        at=NOW,
        pieces=msgspec.json.encode([piece]),
    )
    return msgspec.structs.replace(plain, **changes)


class WorkLogsSuite:
    """A part of `StoreSuite`."""

    store: Store

    def _runs(self, *runs: str, finished: bool = False) -> None:
        self.store.commit(a_batch(*(a_commit(run, 1, finished=finished) for run in runs)))

    def _numbers(self, run: str = "r1", **wanted: Any) -> list[int]:
        return [row.number for row in self.store.log_rows(LogFilter(run=run, **wanted))]

    def test_rows_of_a_log_are_read_back_as_they_were_written(self) -> None:
        self._runs("r1", "r2")
        rows = [a_log_row("r1", 1), a_log_row("r1", 2, "grün\x00", job="j2", attempt=3)]
        self.store.append_logs([*rows, a_log_row("r2", 1)])
        assert self.store.log_rows(LogFilter(run="r1")) == rows
        assert self.store.log_rows(LogFilter(run="r3")) == []

    def test_rows_of_a_log_can_be_chosen(self) -> None:
        self._runs("r1")
        jobs = [("j1", 1, "a"), ("j1", 2, "a"), ("j2", 1, "b"), ("j2", 1, "b")]
        for number, (job, attempt, step) in enumerate(jobs, 1):
            row = a_log_row("r1", number, job=job, attempt=attempt, step=step)
            self.store.append_logs([row])
        assert self._numbers(after=2) == [3, 4]
        assert self._numbers(limit=2) == [1, 2]
        assert self._numbers(limit=0) == []
        assert self._numbers(limit=2, newest=True) == [3, 4]
        assert self._numbers(limit=9, newest=True, after=1) == [2, 3, 4]
        assert self._numbers(before=3) == [1, 2]
        assert self._numbers(before=4, limit=1, newest=True) == [3]
        assert self._numbers(step="a") == [1, 2]
        assert self._numbers(job="j2", after=3) == [4]
        assert self._numbers(job="j1", attempt=2) == [2]

    def test_rows_of_a_run_that_is_not_there_are_left_out(self) -> None:
        self._runs("r1")
        self.store.append_logs([a_log_row("gone", 1), a_log_row("r1", 1)])
        assert self._numbers("gone") == []
        assert self._numbers() == [1]

    def test_a_number_is_used_once(self) -> None:
        self._runs("r1", "r2")
        self.store.append_logs([a_log_row("r1", 1, "first")])
        with refused(Conflict, "another writer"):
            self.store.append_logs([a_log_row("r2", 1), a_log_row("r1", 1, "second")])
        assert self._numbers("r2") == []
        (row,) = self.store.log_rows(LogFilter(run="r1"))
        assert b"first" in row.pieces

    def test_what_a_store_has_of_the_log_of_a_run_is_known(self) -> None:
        self._runs("r1")
        assert self.store.log_state("r1") == LogState()
        self.store.append_logs([a_log_row("r1", 1), a_log_row("r1", 2, start=500, size=7)])
        self.store.append_logs([a_log_row("r1", 5, job="j2", start=0)])
        found = self.store.log_state("r1")
        assert found == LogState(5, 27, {("j1", 1): 507, ("j2", 1): 10})

    def test_the_middle_of_an_attempt_is_trimmed(self) -> None:
        self._runs("r1")
        rows = [a_log_row("r1", number) for number in range(1, 6)]
        other = a_log_row("r1", 6, job="j2", start=20)
        self.store.append_logs([*rows, other], [LogTrim("r1", "j1", 1, 10, 35)])
        assert self._numbers() == [1, 4, 5, 6]

    def test_a_run_keeps_the_first_and_the_last_of_its_log(self) -> None:
        self._runs("r1")
        assert self.store.shrink_logs("r1", 10, 10) == 0
        self.store.append_logs([a_log_row("r1", number) for number in range(1, 11)])
        assert self.store.shrink_logs("r1", 25, 39) == 50
        assert self._numbers() == [1, 2, 8, 9, 10]
        assert self.store.shrink_logs("r1", 25, 39) == 50

    def test_logs_go_with_their_run(self) -> None:
        self._runs("r1", "r2", finished=True)
        rows = [a_log_row("r1", 1), a_log_row("r2", 1)]
        without = self.store.forget(["r1"], dry_run=True)
        self.store.append_logs(rows)
        seen = self.store.forget(["r1"], dry_run=True)
        assert seen.bytes == without.bytes + len(rows[0].pieces)
        assert self._numbers() == [1]
        assert self.store.forget(["r1"]) == seen
        assert self._numbers() == []
        assert self._numbers("r2") == [1]
