"""The part of the reference store that is about limits across runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from anabranch.store.admission_ports import (
    Admission,
    AdmissionTurn,
    LimitedKey,
    QueuePlace,
    SurplusRun,
)
from anabranch.store.memory.part import MemoryPart

if TYPE_CHECKING:
    from anabranch.store.ports import Head


class MemoryAdmissions(MemoryPart):
    """A part of `MemoryStore`."""

    if TYPE_CHECKING:
        _heads: dict[str, Head]

    def __init__(self) -> None:
        super().__init__()
        self._admissions: dict[tuple[str, str], Admission] = {}  # (run, key)

    def admit(
        self,
        keys: Collection[str],
        now: int,
        *,
        asked: Sequence[Admission] = (),
        ended: Sequence[str] = (),
        only: Collection[str] | None = None,
    ) -> AdmissionTurn:
        with self._open():
            for one in asked:
                self._admissions.setdefault((one.run, one.key), replace(one, admitted_at=None))
            self._forget_ended_admissions(ended)
            admitted: list[str] = []
            surplus: list[SurplusRun] = []
            wanted = dict.fromkeys([*keys, *(one.key for one in asked)])
            for key in wanted:
                for one in self._waiting_under(key):
                    mine = [each for each in self._admissions.values() if each.run == one.run]
                    room = all(len(self._holding_under(each.key)) < each.limit for each in mine)
                    if room and (only is None or one.run in only):
                        for each in mine:
                            self._admissions[each.run, each.key] = replace(each, admitted_at=now)
                        admitted.append(one.run)
            for key in wanted:
                surplus += self._surplus_under(key)
            return AdmissionTurn(admitted, surplus)

    def _forget_ended_admissions(self, ended: Sequence[str]) -> None:
        over = {run for run, _ in self._admissions if not self._unfinished_run(run)}
        self._forget_places({*ended, *over})

    def _forget_places(self, gone: Collection[str]) -> None:
        for run, key in list(self._admissions):
            if run in gone:
                del self._admissions[run, key]

    def _unfinished_run(self, run: str) -> bool:
        head = self._heads.get(run)
        return head is not None and not head.finished

    def _holding_under(self, key: str) -> list[Admission]:
        found = [one for one in self._admissions.values() if one.key == key]
        held = [one for one in found if one.admitted_at is not None]
        held = [one for one in held if self._unfinished_run(one.run)]
        return sorted(held, key=lambda one: (one.admitted_at or 0, one.asked_at, one.run))

    def _waiting_under(self, key: str) -> list[Admission]:
        found = [one for one in self._admissions.values() if one.key == key]
        waits = [one for one in found if one.admitted_at is None and self._unfinished_run(one.run)]
        return sorted(waits, key=lambda one: (-one.priority, one.asked_at, one.run))

    def _surplus_under(self, key: str) -> list[SurplusRun]:
        waits = self._waiting_under(key)
        held = len(self._holding_under(key))  # or it waits for a place under another key
        refused = [
            SurplusRun(one.run, key, one.limit)
            for one in waits
            if one.when_full == "reject" and held >= one.limit
        ]
        newer = [one for one in waits if one.when_full == "cancel_oldest"]
        if not newer:
            return refused
        newest = max(newer, key=lambda one: (one.asked_at, one.run))
        there = [*self._holding_under(key), *newer]
        there.sort(key=lambda one: (one.asked_at, one.run))
        over = there[: max(0, len(there) - newest.limit)]
        return refused + [SurplusRun(one.run, key, one.limit, newest.run) for one in over]

    def admissions(self, key: str, limit: int = 1000) -> list[Admission]:
        with self._open():
            return [*self._holding_under(key), *self._waiting_under(key)][: max(limit, 0)]

    def places(self, run: str) -> list[QueuePlace]:
        with self._open():
            mine = [one for one in self._admissions.values() if one.run == run]
            mine = [one for one in mine if self._unfinished_run(run)]
            return [
                QueuePlace(
                    one,
                    len(self._holding_under(one.key)),
                    0
                    if one.admitted_at is not None
                    else [each.run for each in self._waiting_under(one.key)].index(run) + 1,
                )
                for one in sorted(mine, key=lambda one: one.key)
            ]

    def limited_keys(self, after: str = "", limit: int = 1000) -> list[LimitedKey]:
        with self._open():
            alive = [one for one in self._admissions.values() if self._unfinished_run(one.run)]
            keys = sorted({one.key for one in alive if one.key > after})[: max(limit, 0)]
            return [self._limited_key(key, alive) for key in keys]

    def _limited_key(self, key: str, alive: Sequence[Admission]) -> LimitedKey:
        found = [one for one in alive if one.key == key]
        waits = [one.asked_at for one in found if one.admitted_at is None]
        limit = max(one.limit for one in found)
        return LimitedKey(key, limit, len(found) - len(waits), len(waits), min(waits, default=None))

    def admissions_known(self, runs: Sequence[str]) -> set[str]:
        with self._open():
            return {run for run, _ in self._admissions if run in runs}

    def admitted_and_queued(self, limit: int = 1000) -> list[str]:
        with self._open():
            held = {one.run for one in self._admissions.values() if one.admitted_at is not None}
            queued = [run for run in sorted(held) if self._unfinished_run(run)]
            queued = [run for run in queued if self._heads[run].status == "queued"]
            return queued[: max(limit, 0)]
