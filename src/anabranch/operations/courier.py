"""The courier: follows the log for every webhook and sends what they asked for.

    log ─▶ look (cursor moves, deliveries are written: one transaction) ─▶ send ─▶ settle

Nothing is sent that is not in the store, and a cursor moves only with what was found, so a crash at
any point means that something is looked at or sent again, never that it is lost. Of one run at most
one delivery is out for a hook; a failing one holds back those behind it and nobody else. A hook
whose queue is full looks no further: the log itself is the rest of the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from anabranch.clock import Clock
from anabranch.errors import AnabranchError
from anabranch.operations.notices import Finder, delivery_id
from anabranch.operations.posting import DELIVERY, EVENT, SIGNATURE, Posted, Poster, sign
from anabranch.operations.webhooks import secret_of
from anabranch.runtime.metrics import Counter
from anabranch.settings import Settings
from anabranch.store.hook_ports import Delivery, Hook
from anabranch.store.ports import Store

log = logging.getLogger("anabranch.webhooks")

ROWS_AT_ONCE = 500
OUT_MAX = 8  # deliveries of one hook that are out at once
POLL_SECONDS = 1.0
PAUSE_SECONDS = 0.05  # between two looks: a busy engine is not to be slowed down
QUICK_SECONDS = 0.005  # likewise, while deliveries come to their end: the next may be waiting
LAZY_ROWS = 2000  # a cursor that found nothing is written after so many rows,
LAZY_MS = 5000  # or so long
BACKOFF_FIRST, BACKOFF_MOST = 1.0, 3600.0  # seconds
SWEEP_MS = 60_000
FULL_MS = 1000  # how long a hook whose queue is full does not look at the log

Dice = Callable[[], float]


class Courier:
    def __init__(
        self,
        store: Store,
        finder: Finder,
        poster: Poster,
        *,
        clock: Clock,
        settings: Settings,
        dice: Dice = random.random,
    ) -> None:
        self._store = store
        self._finder = finder
        self._poster = poster
        self._clock = clock
        self._age_ms = int(settings.webhook_age_hours * 3_600_000)
        self._kept_ms = int(settings.webhook_kept_days * 86_400_000)
        self._backlog_max = settings.webhook_backlog_max
        self._dice = dice
        self._wake = asyncio.Event()
        self._out: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        self._looked: dict[str, tuple[int, int]] = {}  # hook → position looked at, written when
        self._full_until: dict[str, int] = {}
        self._swept_at = 0
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._any = True
        self._moving = False  # a delivery has ended since the last round
        self.attempts = Counter(
            "anabranch_webhook_attempts_total", "notifications sent, by how it went", ["how"]
        )

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """What is out is given up; it goes out again with the next courier."""
        self._closing = True  # a cancel alone can be lost in `wait_for` at the moment of a wake-up
        tasks = [task for task in (self._task, *self._out.values()) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._task = None
        with contextlib.suppress(AnabranchError):
            await asyncio.to_thread(self._write_cursors)
        await self._poster.close()

    def news(self, _published: Any = None) -> None:
        """Something may have been recorded, or a hook has changed."""
        if self._any:
            self._wake.set()

    def changed(self) -> None:
        """Somebody added or changed a hook, or wants something sent again."""
        self._any = True
        self._wake.set()

    async def _run(self) -> None:
        while not self._closing:
            try:
                more = await self.round()
            except AnabranchError as error:  # the store is busy or gone; the next round tells
                log.warning("webhooks: %s", error.message)
                more = False
            except Exception:  # a defect of ours must not end all deliveries for good
                log.exception("webhooks: a round failed")
                more = False
            if not more:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), POLL_SECONDS)
            self._wake.clear()
            pause, self._moving = QUICK_SECONDS if self._moving else PAUSE_SECONDS, False
            await asyncio.sleep(pause)

    async def round(self) -> bool:
        """Look once and send what is due; is there more to look at?"""
        hooks = await asyncio.to_thread(self._store.hooks)
        enabled = [hook for hook in hooks if hook.enabled]
        self._any = bool(enabled)
        more = False
        for hook in enabled:
            more = await asyncio.to_thread(self._look, hook) or more
            await self._send_due(hook)
        await self._sweep()
        return more

    # -- looking -----------------------------------------------------------------------------

    def _look(self, hook: Hook) -> bool:
        """One page of the log; in a thread."""
        now = self._clock.now()
        if now < self._full_until.get(hook.id, 0):
            return False
        position, written_at = self._looked.get(hook.id, (hook.cursor, now))
        position = max(position, hook.cursor)
        entries = self._store.feed(position, ROWS_AT_ONCE)
        found = self._finder.find(hook, entries, now) if entries else []
        if found and self._full(hook, len(found)):
            self._full_until[hook.id] = now + FULL_MS
            return False
        to = entries[-1].position if entries else position
        lazy = to - hook.cursor < LAZY_ROWS and now - written_at < LAZY_MS
        if to > hook.cursor and (found or not lazy):
            if not self._store.advance_hook(hook.id, hook.cursor, to, found):
                self._looked.pop(hook.id, None)  # changed by somebody else: look again
                return True
            written_at = now
        self._looked[hook.id] = to, written_at if to > hook.cursor else now
        return len(entries) == ROWS_AT_ONCE

    def _write_cursors(self) -> None:
        """What was looked at without finding anything need not be looked at again."""
        for hook in self._store.hooks():
            position, _ = self._looked.get(hook.id, (0, 0))
            if position > hook.cursor:
                self._store.advance_hook(hook.id, hook.cursor, position, [])

    def _full(self, hook: Hook, more: int) -> bool:
        backlog = self._store.backlog().get(hook.id)
        pending = backlog.pending if backlog is not None else 0
        return pending > 0 and pending + more > self._backlog_max

    # -- sending -----------------------------------------------------------------------------

    async def _send_due(self, hook: Hook) -> None:
        room = OUT_MAX - sum(key[0] == hook.id for key in self._out)
        if room <= 0:
            return
        now = self._clock.now()
        # Runs with one out now are left to the next round: its row may be read before it is settled
        # and looked at after, and would go out twice.
        busy = {key[:2] for key in self._out}
        due = await asyncio.to_thread(self._store.due_deliveries, hook.id, now, 2 * OUT_MAX)
        loop = asyncio.get_running_loop()
        for one in due:
            if (one.hook, one.run) in busy or room <= 0:
                continue
            room -= 1
            busy.add((one.hook, one.run))
            key = one.hook, one.run, one.seq
            self._out[key] = loop.create_task(self._deliver(hook, one))

    async def _deliver(self, hook: Hook, one: Delivery) -> None:
        try:
            posted = await self._post(hook, one)
            after = self._after(one, posted)
            await asyncio.to_thread(self._store.settle_delivery, after, self._clock.now())
        except AnabranchError as error:  # it stays pending, and goes out again
            log.warning("webhook %s: %s", hook.id, error.message)
        except Exception:
            log.exception("webhook %s: sending failed", hook.id)
        else:
            self._tell(hook, after)
        finally:
            self._out.pop((one.hook, one.run, one.seq), None)
            self._moving = True
            self._wake.set()

    async def _post(self, hook: Hook, one: Delivery) -> Posted:
        secret = secret_of(hook)
        if secret is None:
            return Posted(None, "the variable that holds its secret is not set")
        headers = {
            DELIVERY: delivery_id(one.hook, one.run, one.seq),
            EVENT: one.kind,
            SIGNATURE: sign(secret, one.body, self._clock.now() // 1000),
        }
        return await self._poster.post(hook.url, one.body, headers)

    def _after(self, one: Delivery, posted: Posted) -> Delivery:
        now = self._clock.now()
        tried = replace(
            one,
            attempts=one.attempts + 1,
            last_at=now,
            last_status=posted.status,
            last_error=posted.error,
        )
        if posted.taken:
            return replace(tried, state="done", due=None)
        end = one.found_at + self._age_ms
        if now >= end:
            return replace(tried, state="dead", due=None)
        return replace(tried, due=min(now + self._pause_ms(tried.attempts), end))

    def _pause_ms(self, attempts: int) -> int:
        """Twice as long each time, with chance in it so that many do not come back at once."""
        most = min(BACKOFF_MOST, BACKOFF_FIRST * 2 ** min(attempts - 1, 20))
        return int(1000 * most * (0.5 + 0.5 * self._dice()))

    def _tell(self, hook: Hook, after: Delivery) -> None:
        self.attempts.add(("taken" if after.state == "done" else "failed",))
        if after.state == "dead":
            name = delivery_id(after.hook, after.run, after.seq)
            log.error("webhook %s: gave up on %s: %s", hook.id, name, after.last_error)

    async def _sweep(self) -> None:
        now = self._clock.now()
        if now - self._swept_at >= SWEEP_MS:
            self._swept_at = now
            await asyncio.to_thread(self._store.forget_deliveries, now - self._kept_ms)
