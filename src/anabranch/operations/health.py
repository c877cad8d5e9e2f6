"""Health by progress: not whether the process is there, but whether it gets anywhere.

An engine that waits for a disk that does not answer is alive and moves nothing. So what is asked is
when it last took a turn, how late its timers are, how long a commit has been under way, whether the
store takes a write and has room, whether notifications leave. Each answer is `ok`, `warn` (worth a
look) or `bad`. Nothing is remembered: what is mended is well again with the next look.

    live    is the process worth keeping? bad: start it again
    ready   should it get requests and work? bad: not now

Callers without a token are told this too. So of a database its address, users and hosts are for the
log of the server alone; here stand the code of the error and what to do about it.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import msgspec

from anabranch.errors import AnabranchError, MissingRequirements
from anabranch.operations.read.on_clusters import Clusters
from anabranch.operations.webhooks.dispatcher import WebhookDispatcher
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.metrics.loop_lag import LoopLag
from anabranch.settings import Settings
from anabranch.store.hook_ports import Backlog
from anabranch.store.location import has_file

log = logging.getLogger("anabranch.http")

Level = Literal["ok", "warn", "bad"]
PROBE_SECONDS = 1.0  # who asks more often gets the same answer about the store
HELD_AGO_SECONDS = 60.0  # for so long it is said that the event loop was held up
#: What to do about errors of a database, which have these codes.
ADVICE: Mapping[str, str] = {
    "store_away": "no database server answers; start it, or mend the network",
    "store_busy": "the database server is short of connections or memory",
    "store_full": "make room on the disk of the database server",
    "store_no_database": "the database is not there; create or restore it",
    "store_password": "the database server refuses the password; change it in the setting store",
    "store_read_only": "the database takes no writes; is it a replica?",
    "store_rights": "the role of this server lacks rights on its tables",
    "store_slow": "the database server took too long for a statement",
}


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at. `value` is seconds or bytes, as `unit` says."""

    name: str
    level: Level
    value: float | None = None
    unit: str = ""
    reason: str = ""  # what is wrong, and what to do about it


class HealthReport(msgspec.Struct, frozen=True, kw_only=True):
    status: Level
    live: bool
    ready: bool
    reasons: list[str]
    checks: list[Check]


class Health:
    def __init__(self, engine: EngineLoop, settings: Settings, loop: LoopLag) -> None:
        self._engine = engine
        self._settings = settings
        self._loop = loop
        self.dispatcher: WebhookDispatcher | None = None  # it is made later
        self.clusters: Clusters | None = None  # that do the jobs of pools
        self._stall = settings.health_stall_seconds
        self._probe: asyncio.Future[Mapping[str, Backlog]] | None = None
        self._thread = ThreadPoolExecutor(1, "anabranch-health")  # whatever the others are at
        self._probed_at = 0.0
        self._wrong_clock = ""  # what the last probe found
        self._logged = ""  # what was last kept from callers

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def report(self) -> HealthReport:
        vital = [self._running(), self._turns(), self._commits()]
        others = [self._held_up(), self._timers(), self._set_aside()]
        others += [*await self._stored(), self._disk()]
        checks = vital + others + self._lease() + self._pools() + self._left_alone()
        levels = [check.level for check in checks]
        status: Level = "bad" if "bad" in levels else "warn" if "warn" in levels else "ok"
        return HealthReport(
            status=status,
            live=all(check.level != "bad" for check in (vital[:1] if self._held else vital)),
            ready=status != "bad",
            reasons=[check.reason for check in checks if check.level != "ok"],
            checks=checks,
        )

    @property
    def _held(self) -> bool:
        """Another machine has to be mended: to start this process again would mend nothing."""
        return self._engine.store.cluster is not None and self._engine.trouble is not None

    def _why(self, error: BaseException) -> str:
        """What is wrong, without the address of a database."""
        said = error.message if isinstance(error, AnabranchError) else repr(error)
        if self._engine.store.cluster is None:
            return said
        if self._engine.trouble is None and said != self._logged:  # or else the engine has said it
            self._logged = said
            log.warning("health is not good: %s", said)
        code = error.code if isinstance(error, AnabranchError) else "defect"
        return f"{ADVICE.get(code, 'the log of the server says why')} ({code})"

    def _left_alone(self) -> list[Check]:
        """Runs that need what this engine does not have: they wait for one that has it.

        Without their names, as with those that are set aside.
        """
        left = [e for e in self._engine.set_aside.values() if isinstance(e, MissingRequirements)]
        if not left:
            return []
        runs = "1 run is" if len(left) == 1 else f"{len(left):,} runs are"
        codes = ", ".join(sorted({code for each in left for code in each.missing}))
        said = f"{runs} left as found, for want of what is needed ({codes}): the log names them"
        return [Check(name="requirements", level="warn", value=len(left), unit="", reason=said)]

    # -- what a restart would mend -----------------------------------------------------------

    def _running(self) -> Check:
        failure = self._engine.failure
        if failure is not None:
            return _bad("engine", f"the engine has stopped: {self._why(failure)}")
        if not self._engine.is_open:
            return _bad("engine", "the engine is not open")
        return Check(name="engine", level="ok")

    def _turns(self) -> Check:
        """An idle engine turns too, whenever it looks for messages."""
        last = self._engine.engine_metrics.turned_at
        if not last:
            return Check(name="turns", level="ok", unit="seconds")  # it has only just begun
        age = max(0, self._engine.clock.now() - last) / 1000
        if age > self._stall + self._settings.poll_seconds:
            waiting = self._engine.inbox
            said = f"the engine has taken no turn for {age:.0f} s; {waiting} stimuli wait for one"
            return _bad("turns", said, age)
        return Check(name="turns", level="ok", value=age, unit="seconds")

    def _commits(self) -> Check:
        """A commit that does not come back, or work that waits and no commit since."""
        engine_metrics, now = self._engine.engine_metrics, time.monotonic()
        writing = now - engine_metrics.writing_since if engine_metrics.writing_since else 0.0
        if writing > self._stall:
            said = f"a commit has been running for {writing:.0f} s"
            trouble = self._engine.trouble
            why = self._why(trouble) if trouble is not None else "look at the disk of the store"
            return _bad("commits", f"{said}: {why}", writing)
        age = now - engine_metrics.committed_at if engine_metrics.committed_at else None
        return Check(name="commits", level="ok", value=age, unit="seconds")

    # -- what it would not -------------------------------------------------------------------

    def _timers(self) -> Check:
        late = self._engine.timers_overdue_ms / 1000
        if late > self._stall:
            return _bad("timers", f"the next timer is {late:.0f} s late", late)
        return Check(name="timers", level="ok", value=late, unit="seconds")

    def _held_up(self) -> Check:
        """Afterwards, that is: while it is held up nobody gets an answer."""
        loop = self._loop
        if not loop.held_at:
            return Check(name="loop", level="ok", unit="seconds")
        ago = time.monotonic() - loop.held_at
        if ago > HELD_AGO_SECONDS:
            return Check(name="loop", level="ok", unit="seconds")
        said = f"the event loop was held up for {loop.held_seconds:.1f} s, {ago:.0f} s ago"
        reason = f"{said}: the log of the server says by what"
        return Check(
            name="loop", level="warn", value=loop.held_seconds, unit="seconds", reason=reason
        )

    def _set_aside(self) -> Check:
        """Without their names: health is told to those who have no token."""
        broken = self._engine.set_aside.values()
        count = sum(not isinstance(each, MissingRequirements) for each in broken)
        if not count:
            return Check(name="runs", level="ok")
        runs = "1 run is" if count == 1 else f"{count:,} runs are"
        said = f"{runs} set aside: the log of the server names them and says why"
        return Check(name="runs", level="warn", reason=said)

    async def _stored(self) -> list[Check]:
        """One probe at a time: a store that hangs must not collect threads."""
        now = time.monotonic()
        if self._probe is None or (self._probe.done() and now - self._probed_at >= PROBE_SECONDS):
            self._probed_at = now
            self._probe = asyncio.get_running_loop().run_in_executor(self._thread, self._ask_store)
        try:
            backlog = await asyncio.wait_for(asyncio.shield(self._probe), min(self._stall, 2.0))
        except TimeoutError:
            trouble = self._engine.trouble
            why = self._why(trouble) if trouble is not None else "look at its disk"
            return [_bad("store", f"the store has not taken a write in time: {why}")]
        except AnabranchError as error:
            return [_bad("store", f"the store takes no writes: {self._why(error)}")]
        if (trouble := self._engine.trouble) is not None:
            return [_bad("store", f"the engine waits for the store: {self._why(trouble)}")]
        return [Check(name="store", level="ok"), *self._clocks(), *self._webhooks(backlog)]

    def _ask_store(self) -> Mapping[str, Backlog]:
        if (clock := self._engine.server_clock) is not None:
            self._wrong_clock = clock.look()
        self._engine.store.probe_write()
        return self._engine.store.backlog()

    def _clocks(self) -> list[Check]:
        clock = self._engine.server_clock
        if clock is None:
            return []
        level: Level = "bad" if not clock.usable else "warn" if self._wrong_clock else "ok"
        seconds = clock.ahead_seconds
        return [
            Check(
                name="clock", level=level, value=seconds, unit="seconds", reason=self._wrong_clock
            )
        ]

    def _webhooks(self, backlog: Mapping[str, Backlog]) -> list[Check]:
        """A receiver that takes nothing is not our fault; a dispatcher that stands still is."""
        if self.dispatcher is None:
            return []
        now = self._engine.clock.now()
        round_at = self.dispatcher.rounded_at
        if round_at and (now - round_at) / 1000 > self._stall:
            since = (now - round_at) / 1000
            said = f"the dispatcher has not looked for notifications in {since:.0f} s"
            return [_bad("webhooks", said, since)]
        waiting = [(each.oldest, hook) for hook, each in backlog.items() if each.oldest is not None]
        if not waiting:
            return [Check(name="webhooks", level="ok", value=0.0, unit="seconds")]
        since, hook = min(waiting)
        age = max(0, now - since) / 1000
        said = f"a notification has waited {age:.0f} s for the receiver of webhook {hook}"
        return [self._queue("webhooks", age, f"{said}: look at its deliveries")]

    def _disk(self) -> Check:
        if not has_file(self._settings.store):
            return Check(name="disk", level="ok", unit="bytes")
        free = shutil.disk_usage(Path(self._settings.store).absolute().parent).free
        least = self._settings.health_disk_bytes
        if free < least:
            said = f"{free:,} bytes are free beside the store, fewer than {least:,}: make room"
            return _bad("disk", f"{said} (setting health_disk_bytes)", free, "bytes")
        return Check(name="disk", level="ok", value=free, unit="bytes")

    def _lease(self) -> list[Check]:
        """Of one server among several: without a lease it moves no run, and others take over."""
        if self._engine.member is None:
            return []
        left = self._engine.member.membership.lease_left
        if not left:
            return [_bad("lease", "the lease of this server has ended: it joins again", left)]
        return [Check(name="lease", level="ok", value=left, unit="seconds")]

    def _pools(self) -> list[Check]:
        """Jobs nobody fetches are for people to see to: starting the server again mends nothing."""
        pools, now = self._engine.pools, self._engine.clock.now()
        names = {*pools.names(), *(self.clusters.pools() if self.clusters is not None else ())}
        checks = []
        for name in sorted(names):
            since = pools.oldest(name)
            age = max(0, now - since) / 1000 if since else 0.0
            checks.append(self._on_cluster(name, age) or self._of_workers(name, age))
        return checks

    def _of_workers(self, pool: str, age: float) -> Check:
        said = f"a job has waited {age:.0f} s for a worker of pool {pool!r}: start one"
        return self._queue(f"pool:{pool}", age, said)

    def _on_cluster(self, pool: str, age: float) -> Check | None:
        """Of a pool that a compute cluster does; who asks may not know where that is."""
        place = self.clusters.of_pool(pool) if self.clusters is not None else None
        if place is None:
            return None
        name = f"pool:{pool}"
        if place.state in ("away", "unfit"):
            state = "does not answer" if place.state == "away" else "cannot do its jobs"
            said = f"the {place.engine} cluster of pool {pool!r} {state}: /pools says why"
            return Check(name=name, level="warn", value=age, unit="seconds", reason=said)
        said = f"a job has waited {age:.0f} s for room at the {place.engine} cluster of {pool!r}"
        return self._queue(name, age, f"{said}: /pools shows what it has")

    def _queue(self, name: str, age: float, reason: str) -> Check:
        """By how long the first in it has waited."""
        if age > self._settings.health_queue_seconds:
            return Check(name=name, level="warn", value=age, unit="seconds", reason=reason)
        return Check(name=name, level="ok", value=age, unit="seconds")


def as_text(report: HealthReport) -> str:
    """For people: what is wrong comes first."""
    live, ready = ("" if well else "not " for well in (report.live, report.ready))
    lines = [f"{report.status}: {live}live, {ready}ready"]
    rank = {"bad": 0, "warn": 1, "ok": 2}
    for check in sorted(report.checks, key=lambda check: rank[check.level]):
        if check.value is None:
            value = ""
        elif check.unit == "bytes":
            value = f"{check.value:,.0f} bytes"
        else:
            value = f"{check.value:.1f} s"
        lines.append(f"  {check.level:<5} {check.name:<12} {value:<18} {check.reason}".rstrip())
    return "\n".join(lines) + "\n"


def _bad(name: str, reason: str, value: float | None = None, unit: str = "seconds") -> Check:
    return Check(name=name, level="bad", value=value, unit=unit, reason=reason)
