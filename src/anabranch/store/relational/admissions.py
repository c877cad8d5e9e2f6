"""The part of a relational store that is about limits across runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from anabranch.store.admission_ports import (
    Admission,
    AdmissionTurn,
    LimitedKey,
    QueuePlace,
    SurplusRun,
)
from anabranch.store.relational.connection import Connection, RelationalPart

_PAGE = 100  # runs that wait, looked at in one statement


class RelationalAdmissions(RelationalPart):
    def admit(
        self,
        keys: Collection[str],
        now: int,
        *,
        asked: Sequence[Admission] = (),
        ended: Sequence[str] = (),
        only: Collection[str] | None = None,
    ) -> AdmissionTurn:
        admitted: list[str] = []
        surplus: list[SurplusRun] = []
        wanted = sorted({*keys, *(one.key for one in asked)})
        if not wanted and not ended:
            return AdmissionTurn()
        with self._transaction() as db:
            self._alone(db, "admissions")  # one decides at a time, or two could give one place away
            if asked:
                db.executemany(self.sql["ask_admission"], [_fields(one) for one in asked])
            if ended:
                db.executemany(self.sql["forget_admissions"], [{"run": run} for run in ended])
            for key in wanted:
                db.execute(self.sql["forget_ended_admissions"], {"key": key})
                admitted += self._fill_places(db, key, now, only)
            for key in wanted:
                surplus += self._surplus_under(db, key)
        return AdmissionTurn(admitted, surplus)

    def _fill_places(
        self, db: Connection, key: str, now: int, only: Collection[str] | None
    ) -> Iterable[str]:
        """Give the places that are free to those that wait, in order."""
        ((held, most),) = db.execute(self.sql["room_under_key"], {"key": key}).fetchall()
        after: dict[str, Any] = {"before_priority": 2**31, "before_asked": -1, "before_run": ""}
        admitted: list[str] = []
        while most is not None and held < most:
            given = {"key": key, "limit": _PAGE, **after}
            rows = db.execute(self.sql["waiting_under_key"], given).fetchall()
            for run, limit, priority, asked_at, over in rows:
                after = {
                    "before_priority": priority, "before_asked": asked_at, "before_run": run,
                }  # fmt: skip
                if over:
                    db.execute(self.sql["forget_admissions"], {"run": run})
                elif only is not None and run not in only:
                    continue
                elif held < limit and self._has_places_for(db, run):
                    db.execute(self.sql["give_places"], {"run": run, "now": now})
                    admitted.append(run)
                    held += 1
                if held >= most:
                    break
            if len(rows) < _PAGE:
                break
        return admitted

    def _has_places_for(self, db: Connection, run: str) -> bool:
        """Under each of its keys: most runs have one, some have more."""
        return not db.execute(self.sql["full_keys_of_run"], {"run": run}).fetchall()

    def _surplus_under(self, db: Connection, key: str) -> list[SurplusRun]:
        rows = db.execute(self.sql["impatient_under_key"], {"key": key}).fetchall()
        if not rows:
            return []
        ((held, _),) = db.execute(self.sql["room_under_key"], {"key": key}).fetchall()
        refused = [
            SurplusRun(run, key, limit)
            for run, limit, policy in rows
            if policy == "reject" and held >= limit  # or it waits for a place under another key
        ]
        newer = [(run, limit) for run, limit, policy in rows if policy == "cancel_oldest"]
        if not newer:
            return refused
        newest, most = newer[-1]
        there = db.execute(self.sql["cancellable_under_key"], {"key": key}).fetchall()
        over = there[: max(0, len(there) - most)]
        return refused + [SurplusRun(run, key, limit, newest) for run, limit in over]

    def admissions(self, key: str, limit: int = 1000) -> list[Admission]:
        fields = {"key": key, "limit": max(limit, 0)}
        return [_admission(row) for row in self._rows(self.sql["admissions"], fields)]

    def places(self, run: str) -> list[QueuePlace]:
        rows = self._rows(self.sql["places_of_run"], {"run": run})
        return [QueuePlace(_admission(row[:7]), row[7], row[8]) for row in rows]

    def limited_keys(self, after: str = "", limit: int = 1000) -> list[LimitedKey]:
        fields = {"after": after, "limit": max(limit, 0)}
        return [LimitedKey(*row) for row in self._rows(self.sql["limited_keys"], fields)]

    def admissions_known(self, runs: Sequence[str]) -> set[str]:
        wanted = {"runs": msgspec.json.encode(list(runs)).decode()}
        return {run for (run,) in self._rows(self.sql["admissions_known"], wanted)}

    def admitted_and_queued(self, limit: int = 1000) -> list[str]:
        rows = self._rows(self.sql["queued_and_admitted"], {"limit": max(limit, 0)})
        return [run for (run,) in rows]


def _fields(one: Admission) -> dict[str, Any]:
    return {
        "run": one.run,
        "key": one.key,
        "run_limit": one.limit,
        "when_full": one.when_full,
        "priority": one.priority,
        "asked_at": one.asked_at,
    }


def _admission(row: Sequence[Any]) -> Admission:
    run, key, limit, when_full, priority, asked_at, admitted_at = row
    return Admission(
        run=run,
        key=key,
        limit=limit,
        when_full=when_full,
        priority=priority,
        asked_at=asked_at,
        admitted_at=admitted_at,
    )
