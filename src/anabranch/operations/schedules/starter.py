"""Turns ticks into runs of an engine. A run that is there already is as good as one that begins."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from typing import Protocol

import msgspec

from anabranch.dialects.schedule import given_at
from anabranch.dialects.timetable import iso
from anabranch.errors import AnabranchError, StoreError
from anabranch.kernel import stimuli as s
from anabranch.net.net import Net
from anabranch.operations.definitions.catalog import Catalog
from anabranch.operations.definitions.prepare import Prepared
from anabranch.operations.runs.verbs import Verbs
from anabranch.operations.schedules.labels import LABEL, LABEL_KIND, LABEL_TIME
from anabranch.operations.schedules.plan import Begin, Begun
from anabranch.operations.schedules.schedule import Schedule, Target, refused_text
from anabranch.operations.schedules.targets import definition_of
from anabranch.runtime.admissions import FULL
from anabranch.runtime.messages.codec import ELSEWHERE
from anabranch.store.cluster_ports import PARTITION_LOST
from anabranch.store.outages import UNSURE, passes
from anabranch.work.evaluations import evaluate

log = logging.getLogger("anabranch.schedules")

ACTOR = "schedule"
#: What ends by itself or with the process: the tick is tried again, here or elsewhere.
_PASSING = frozenset({"engine_closed", "engine_stopped", ELSEWHERE, PARTITION_LOST, UNSURE})


class Wanted(msgspec.Struct, frozen=True):
    schedule: Schedule
    begin: Begin


class RunStarter(Protocol):
    async def begin(self, wanted: Sequence[Wanted]) -> list[Begun | None]:
        """What came of each; None where it cannot be begun at present."""

    async def cancel(self, run: str, reason: str) -> bool:
        """False where that cannot be said at present; a run that has ended needs no telling."""

    def prefers(self, run: str) -> bool:
        """Whether this server would own the run: others leave it to it for a moment."""


class EngineStarter:
    def __init__(
        self, verbs: Verbs, catalog: Catalog, prefers: Callable[[str], bool] | None = None
    ) -> None:
        self._verbs = verbs
        self._catalog = catalog
        self._prefers = prefers

    def find(self, target: Target) -> Net:
        return self._prepared(target).net

    def _prepared(self, target: Target) -> Prepared:
        engine = self._verbs.engine
        return definition_of(engine.store, engine.nets, self._catalog, target)

    def prefers(self, run: str) -> bool:
        return self._prefers is None or self._prefers(run)

    async def begin(self, wanted: Sequence[Wanted]) -> list[Begun | None]:
        """All at once: the engine writes them in few commits."""
        targets = {one.schedule.target for one in wanted}
        ready = {target: await asyncio.to_thread(self._ready, target) for target in targets}
        known: dict[str, bool] = {}
        begun = asyncio.gather(
            *(self._one(one, ready[one.schedule.target], known) for one in wanted)
        )  # none of them has gone a step yet
        known |= self._verbs.engine.expect_new([one.begin.run for one in wanted])
        return list(await begun)

    def _ready(self, target: Target) -> Prepared | AnabranchError:
        try:
            return self._prepared(target)
        except AnabranchError as error:
            return error

    async def _one(
        self, one: Wanted, ready: Prepared | AnabranchError, known: Collection[str]
    ) -> Begun | None:
        run = one.begin.run
        if run in known:
            return Begun(existed=True)
        try:
            if isinstance(ready, AnabranchError):
                raise ready
            given, labels = await evaluate(partial(_given, one))
            await self._verbs.start(ready, given, run=run, labels=labels)
        except AnabranchError as error:
            return _outcome(one, error)
        except Exception:  # a defect of ours with one must not cost the others theirs
            log.exception("schedule %s: run %s could not be begun", one.schedule.name, run)
            return None
        return Begun()

    async def cancel(self, run: str, reason: str) -> bool:
        try:
            await self._verbs.send(run, s.Cancel(ACTOR, reason))
        except AnabranchError as error:
            return not passing(error)
        return True


def _given(one: Wanted) -> tuple[dict[str, object], dict[str, str]]:
    schedule, tick = one.schedule, one.begin.tick
    given, labels = given_at(schedule.name, schedule.spec, tick)
    labels |= {LABEL: schedule.name, LABEL_TIME: _time(tick)}
    if one.begin.kind != "tick":
        labels[LABEL_KIND] = one.begin.kind
    return given, labels


@lru_cache(maxsize=1000)
def _time(tick: int) -> str:
    """Many schedules share a tick."""
    return iso(tick).replace("+00:00", "Z")


def _outcome(one: Wanted, error: AnabranchError) -> Begun | None:
    if error.code == "run_exists":
        return Begun(existed=True)
    if passing(error):
        return None
    log.warning("schedule %s: %s is refused: %s", one.schedule.name, one.begin.run, error.message)
    return Begun(refused=refused_text(error), full=error.code == FULL)


def passing(error: AnabranchError) -> bool:
    """Whether the same may be taken a moment later, here or elsewhere."""
    return error.code in _PASSING or (isinstance(error, StoreError) and passes(error))
