"""Health by progress: not whether the process is there, but whether it gets anywhere.

An engine that waits for a disk that does not answer is alive and moves nothing. So what is asked is
when it last took a turn, how late its timers are, how long a commit has been under way, whether the
store takes a write and has room, whether notifications leave. Each answer is `ok`, `warn` (worth a
look) or `bad`. Nothing is remembered: what is mended is well again with the next look.

    live    is the process worth keeping? bad: start it again
    ready   should it get requests and work? bad: not now
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from anabranch.errors import AnabranchError, MissingRequirements
from anabranch.operations.webhooks.dispatcher import WebhookDispatcher
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.metrics.loop_lag import LoopLag
from anabranch.settings import Settings
from anabranch.store.hook_ports import Backlog

Level = Literal["ok", "warn", "bad"]
PROBE_SECONDS = 1.0  # who asks more often gets the same answer about the store
HELD_AGO_SECONDS = 60.0  # for so long it is said that the event loop was held up


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
        self._stall = settings.health_stall_seconds
        self._probe: asyncio.Future[Mapping[str, Backlog]] | None = None
        self._probed_at = 0.0

    async def report(self) -> HealthReport:
        vital = [self._running(), self._turns(), self._commits()]
        others = [self._held_up(), self._timers(), self._set_aside()]
        others += [*await self._stored(), self._disk()]
        checks = vital + others + self._pools() + self._left_alone()
        levels = [check.level for check in checks]
        status: Level = "bad" if "bad" in levels else "warn" if "warn" in levels else "ok"
        return HealthReport(
            status=status,
            live=all(check.level != "bad" for check in vital),
            ready=status != "bad",
            reasons=[check.reason for check in checks if check.level != "ok"],
            checks=checks,
        )

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
            why = failure.message if isinstance(failure, AnabranchError) else repr(failure)
            return _bad("engine", f"the engine has stopped: {why}")
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
            why = trouble.message if trouble is not None else "look at the disk of the store"
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
            self._probe = asyncio.get_running_loop().run_in_executor(None, self._ask_store)
        try:
            backlog = await asyncio.wait_for(asyncio.shield(self._probe), min(self._stall, 2.0))
        except TimeoutError:
            return [_bad("store", "the store has not taken a write in time: look at its disk")]
        except AnabranchError as error:
            return [_bad("store", f"the store takes no writes: {error.message}")]
        return [Check(name="store", level="ok"), *self._webhooks(backlog)]

    def _ask_store(self) -> Mapping[str, Backlog]:
        self._engine.store.probe_write()
        return self._engine.store.backlog()

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
        if self._settings.store == ":memory:":
            return Check(name="disk", level="ok", unit="bytes")
        free = shutil.disk_usage(Path(self._settings.store).absolute().parent).free
        least = self._settings.health_disk_bytes
        if free < least:
            said = f"{free:,} bytes are free beside the store, fewer than {least:,}: make room"
            return _bad("disk", f"{said} (setting health_disk_bytes)", free, "bytes")
        return Check(name="disk", level="ok", value=free, unit="bytes")

    def _pools(self) -> list[Check]:
        """Jobs nobody fetches are for people to see to: starting the server again mends nothing."""
        pools, now = self._engine.pools, self._engine.clock.now()
        checks = []
        for name in pools.names():
            since = pools.oldest(name)
            age = max(0, now - since) / 1000 if since else 0.0
            said = f"a job has waited {age:.0f} s for a worker of pool {name!r}: start one"
            checks.append(self._queue(f"pool:{name}", age, said))
        return checks

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
