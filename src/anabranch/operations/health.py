"""Health by progress: not whether the process is there, but whether it gets anywhere.

An engine that waits for a disk that does not answer is alive and moves nothing. So what is asked is
when it last took a turn, how late its timers are, how long a commit has been under way, whether the
store takes a write and has room. Each answer is `ok`, `warn` (worth a look) or `bad`.

    live    is the process worth keeping? bad: start it again
    ready   should it get requests and work? bad: not now
"""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from typing import Literal

import msgspec

from anabranch.errors import AnabranchError
from anabranch.runtime.engine import Engine
from anabranch.runtime.pulse import overdue_ms
from anabranch.settings import Settings

Level = Literal["ok", "warn", "bad"]
Which = Literal["live", "ready"]


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
    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._settings = settings
        self._stall = settings.health_stall_seconds
        self._probe: asyncio.Future[None] | None = None

    async def report(self) -> HealthReport:
        vital = [self._running(), self._turns(), self._commits()]
        others = [self._timers(), await self._writable(), self._disk(), *self._pools()]
        checks = vital + others
        levels = [check.level for check in checks]
        status: Level = "bad" if "bad" in levels else "warn" if "warn" in levels else "ok"
        return HealthReport(
            status=status,
            live=all(check.level != "bad" for check in vital),
            ready=status != "bad",
            reasons=[check.reason for check in checks if check.level != "ok"],
            checks=checks,
        )

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
        last = self._engine.pulse.turned_at
        if not last:
            return Check(name="turns", level="ok", unit="seconds")  # it has only just begun
        age = max(0, self._engine.clock.now() - last) / 1000
        if age > self._stall + self._settings.poll_seconds:
            waiting = self._engine.core.inbox
            said = f"the engine has taken no turn for {age:.0f} s; {waiting} stimuli wait for one"
            return _bad("turns", said, age)
        return Check(name="turns", level="ok", value=age, unit="seconds")

    def _commits(self) -> Check:
        """A commit that does not come back, or work that waits and no commit since."""
        pulse, now = self._engine.pulse, time.monotonic()
        writing = now - pulse.writing_since if pulse.writing_since else 0.0
        if writing > self._stall:
            said = f"a commit has been under way for {writing:.0f} s: look at the disk of the store"
            return _bad("commits", said, writing)
        age = now - pulse.committed_at if pulse.committed_at else None
        return Check(name="commits", level="ok", value=age, unit="seconds")

    # -- what it would not -------------------------------------------------------------------

    def _timers(self) -> Check:
        late = overdue_ms(self._engine.core, self._engine.clock.now()) / 1000
        if late > self._stall:
            return _bad("timers", f"the next timer is {late:.0f} s late", late)
        return Check(name="timers", level="ok", value=late, unit="seconds")

    async def _writable(self) -> Check:
        """One probe at a time: a store that hangs must not collect threads."""
        if self._probe is None or self._probe.done():
            loop = asyncio.get_running_loop()
            self._probe = loop.run_in_executor(None, self._engine.store.probe_write)
        try:
            await asyncio.wait_for(asyncio.shield(self._probe), min(self._stall, 2.0))
        except TimeoutError:
            return _bad("store", "the store has not taken a write in time: look at its disk")
        except AnabranchError as error:
            return _bad("store", f"the store takes no writes: {error.message}")
        return Check(name="store", level="ok")

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
        pools, now = self._engine.core.pools, self._engine.clock.now()
        checks = []
        for name in pools.names():
            since = pools.oldest(name)
            age = max(0, now - since) / 1000 if since else 0.0
            late = age > self._settings.health_queue_seconds
            said = f"a job has waited {age:.0f} s for a worker of pool {name!r}: start one"
            checks.append(
                Check(
                    name=f"pool:{name}",
                    level="warn" if late else "ok",
                    value=age,
                    unit="seconds",
                    reason=said if late else "",
                )
            )
        return checks


def _bad(name: str, reason: str, value: float | None = None, unit: str = "seconds") -> Check:
    return Check(name=name, level="bad", value=value, unit=unit, reason=reason)
