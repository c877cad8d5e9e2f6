"""The dispatcher: follows the log for every webhook and sends what they asked for.

    log ─▶ look (cursor moves, deliveries are written: one transaction) ─▶ send ─▶ settle

Nothing is sent that is not in the store, and a cursor moves only with what was found, so a crash at
any point means that something is looked at or sent again, never that it is lost. Of one run at most
one delivery is out for a hook; a failing one holds back those behind it and nobody else. A hook
whose queue is full looks no further: the log itself is the rest of the queue. Hooks share nothing
that one of them could use up: each has its own places, and what goes wrong with one is its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from anabranch.clock import Clock
from anabranch.errors import AnabranchError
from anabranch.operations.access.secret_key import key_of
from anabranch.operations.webhooks.matcher import WebhookMatcher, delivery_id
from anabranch.operations.webhooks.secrets import secrets_of, variable_of
from anabranch.operations.webhooks.sender import DELIVERY, EVENT, SendResult, WebhookSender
from anabranch.operations.webhooks.signature import SIGNATURE, sign
from anabranch.runtime.metrics.registry import Counter
from anabranch.settings import Settings
from anabranch.store.hook_ports import Backlog, Hook, WebhookDelivery
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
REST_MS = (1000, 60_000)  # after trouble of our own with a hook: at first, and at most
SWEEP_MS = 60_000
SWEPT_AT_ONCE = 1000
FULL_MS = 1000  # how long a hook whose queue is full does not look at the log
GONE = 410  # the receiver wants to hear no more

Dice = Callable[[], float]


class WebhookDispatcher:
    #: Of the metric that counts attempts.
    METRIC = ("anabranch_webhook_attempts_total", "notifications sent, by how it went")

    def __init__(
        self,
        store: Store,
        finder: WebhookMatcher,
        poster: WebhookSender | None,
        *,
        clock: Clock,
        settings: Settings,
        dice: Dice = random.random,
        may_act_for: Callable[[str], bool] = lambda _run: True,
    ) -> None:
        """`may_act_for` says whether deliveries of a run are this server's to send."""
        self._store = store
        self._finder = finder
        self._poster = poster
        self._clock = clock
        self._key = key_of(store, settings)
        self._age_ms = int(settings.webhook_age_hours * 3_600_000)
        self._kept_ms = int(settings.webhook_kept_days * 86_400_000)
        self._backlog_max = settings.webhook_backlog_max
        self._dice = dice
        self._may_act_for = may_act_for
        self._wake = asyncio.Event()
        self._out: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        #: hook and partition → position looked at, written when
        self._looked: dict[tuple[str, int], tuple[int, int]] = {}
        self._full_until: dict[str, int] = {}
        self._resting: dict[str, tuple[int, int]] = {}  # hook → until when, how long it was
        self._backlog: Mapping[str, Backlog] | None = None  # asked once a round
        self._changes = 0
        self._swept_at = 0
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._failing = False  # the last round did
        self._any = True
        self._moving = False  # a delivery has ended since the last round
        self.rounded_at = 0  # when the last round was over; 0 before the first
        self.attempts = Counter(*self.METRIC, ["how"])

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """What is out is given up; it goes out again with the next dispatcher."""
        self._closing = True  # a cancel alone can be lost in `wait_for` at the moment of a wake-up
        tasks = [task for task in (self._task, *self._out.values()) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._task = None
        with contextlib.suppress(AnabranchError):
            await asyncio.to_thread(self._write_cursors)
        if self._poster is not None:
            await self._poster.close()

    async def let_go(self) -> None:
        """Give up what is out for runs that are another server's now, which sends it again: two
        servers that send for the same run would not keep to its order."""
        lost = [task for key, task in self._out.items() if not self._may_act_for(key[1])]
        for task in lost:
            task.cancel()
        if lost:
            await asyncio.wait(lost)

    def news(self, _published: Any = None) -> None:
        """Something may have been recorded, or a hook has changed."""
        if self._any:
            self._wake.set()

    def changed(self) -> None:
        """Somebody added or changed a hook, or wants something sent again.

        What has not left yet leaves only after the hook has been read anew.
        """
        self._changes += 1
        self._any = True
        self._wake.set()

    async def _run(self) -> None:
        while not self._closing:
            try:
                more = await self.round()
            except AnabranchError as error:  # the store is busy or gone; the next round tells
                if not self._failing:  # said once
                    log.warning("webhooks: %s", error.message)
                self._failing, more = True, False
            except Exception:  # a defect of ours must not end all deliveries for good
                log.exception("webhooks: a round failed")
                more = False
            else:
                self._failing = False
            if not more:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), POLL_SECONDS)
            self._wake.clear()
            pause, self._moving = QUICK_SECONDS if self._moving else PAUSE_SECONDS, False
            await asyncio.sleep(pause)

    async def round(self) -> bool:
        """Look once and send what is due; is there more to look at?"""
        changes, self._backlog = self._changes, None
        known = await asyncio.to_thread(self._store.hooks)
        hooks = [hook for hook in known if self._looks_after(hook)]
        enabled = [hook for hook in hooks if hook.enabled]
        self._any = bool(enabled)
        self._forget_others({hook.id for hook in hooks})
        more = False
        for hook in enabled:
            if self._clock.now() < self._resting.get(hook.id, (0, 0))[0]:
                continue
            try:
                more = await asyncio.to_thread(self._look, hook) or more
                await self._send_due(hook, changes)
            except AnabranchError as error:  # the store is busy or gone; a later round tells
                self._rest(hook, error.message)
            except Exception:  # a defect of ours with this hook must not cost the others theirs
                self._rest(hook, "a round failed", defect=True)
        await self._sweep()
        self.rounded_at = self._clock.now()
        return more

    def _looks_after(self, hook: Hook) -> bool:
        return not hook.internal

    def _rest(self, hook: Hook, why: str, *, defect: bool = False) -> None:
        """Our own trouble, not the receiver's: try again later, and later each time."""
        least, most = REST_MS
        _, before = self._resting.get(hook.id, (0, 0))
        pause = min(max(least, 2 * before), most)
        self._resting[hook.id] = self._clock.now() + pause, pause
        log.log(
            logging.ERROR if defect else logging.WARNING,
            "webhook %s: %s; trying again in %d s",
            *(hook.id, why, pause // 1000),
            exc_info=defect,
        )

    def _forget_others(self, known: set[str]) -> None:
        tables: tuple[dict[str, Any], ...] = (self._full_until, self._resting)
        for table in tables:
            for hook in [each for each in table if each not in known]:
                del table[hook]
        for key in [each for each in self._looked if each[0] not in known]:
            del self._looked[key]

    # -- looking -----------------------------------------------------------------------------

    def _look(self, hook: Hook) -> bool:
        """One page of the log of each partition; in a thread."""
        cluster = self._store.cluster
        if cluster is None:
            return self._look_in(hook, 0, hook.cursor)
        cursors, last = self._store.cursors(hook.id), self._store.positions()
        more = False
        for partition in sorted(cluster.owned):
            cursor = cursors.get(partition, 0)
            if last.get(partition, 0) > self._looked.get((hook.id, partition), (cursor, 0))[0]:
                more = self._look_in(hook, partition, cursor) or more
        return more

    def _look_in(self, hook: Hook, partition: int, cursor: int) -> bool:
        now, key = self._clock.now(), (hook.id, partition)
        if now < self._full_until.get(hook.id, 0):
            return False
        position, written_at = self._looked.get(key, (cursor, now))
        position = max(position, cursor)
        entries = self._store.feed(position, ROWS_AT_ONCE, partition)
        found, to = self._finder.find(hook, entries, now) if entries else ([], position)
        if found and self._full(hook, len(found)):
            self._full_until[hook.id] = now + FULL_MS
            return False
        lazy = to - cursor < LAZY_ROWS and now - written_at < LAZY_MS
        if to > cursor and (found or not lazy):
            if not self._store.advance_hook(hook.id, cursor, to, found, partition):
                self._looked.pop(key, None)  # changed by another dispatcher: look again
                return True
            written_at = now
        self._looked[key] = to, written_at if to > cursor else now
        return len(entries) == ROWS_AT_ONCE or bool(entries and to < entries[-1].position)

    def _write_cursors(self) -> None:
        """What was looked at without finding anything need not be looked at again."""
        for (hook, partition), (position, _) in self._looked.items():
            cursor = self._store.cursors(hook).get(partition)
            if cursor is not None and position > cursor:
                self._store.advance_hook(hook, cursor, position, [], partition)

    def _full(self, hook: Hook, more: int) -> bool:
        if self._backlog is None:
            self._backlog = self._store.backlog()
        pending = self._backlog.get(hook.id, Backlog()).pending
        return pending > 0 and pending + more > self._backlog_max

    # -- sending -----------------------------------------------------------------------------

    async def _send_due(self, hook: Hook, changes: int) -> None:
        room = OUT_MAX - sum(key[0] == hook.id for key in self._out)
        if room <= 0:
            return
        now = self._clock.now()
        # Runs with one out now are left to the next round: its row may be read before it is settled
        # and looked at after, and would go out twice.
        busy = {key[:2] for key in self._out}
        due = await asyncio.to_thread(self._store.due_deliveries, hook.id, now, 2 * OUT_MAX)
        if changes != self._changes:
            self._wake.set()
            return  # the hook may be off, gone or have another secret by now
        loop = asyncio.get_running_loop()
        for one in due:
            if (one.hook, one.run) in busy or room <= 0 or not self._may_act_for(one.run):
                continue
            room -= 1
            busy.add((one.hook, one.run))
            key = one.hook, one.run, one.seq
            self._out[key] = loop.create_task(self._deliver(hook, one))

    async def _deliver(self, hook: Hook, one: WebhookDelivery) -> None:
        try:
            if not self._may_act_for(one.run):
                return  # the process was stopped since: the new owner of the run sends it
            posted = await self._post(hook, one)
            after = self._after(one, posted)
            known = await asyncio.to_thread(self._settle, hook, after)
        except AnabranchError as error:  # it stays pending, and goes out again, but not at once
            self._rest(hook, error.message)
        except Exception:
            self._rest(hook, "sending failed", defect=True)
        else:
            self._resting.pop(hook.id, None)
            if known:
                self._tell(hook, after)
        finally:
            self._out.pop((one.hook, one.run, one.seq), None)
            self._moving = True
            self._wake.set()

    def _settle(self, hook: Hook, after: WebhookDelivery) -> bool:
        """False where it is not known any more; in a thread."""
        settled = self._store.settle_delivery(after, self._clock.now())
        if settled and after.last_status == GONE:
            self._turn_off(hook)
        return settled

    def _turn_off(self, hook: Hook) -> None:
        """The receiver is gone for good; what waits is kept until somebody turns it on again."""
        known = self._store.hook(hook.id)
        if known is not None and known.enabled and known.url == hook.url:
            self._store.change_hook(replace(known, enabled=False))
            log.error("webhook %s: its receiver answered %d; it is off now", hook.id, GONE)

    async def _post(self, hook: Hook, one: WebhookDelivery) -> SendResult:
        now = self._clock.now()
        secret, *older = secrets_of(hook, now, self._key) or ("",)
        if not secret:
            return SendResult(None, self._why_no_secret(hook))
        headers = {
            DELIVERY: delivery_id(one.hook, one.run, one.seq),
            EVENT: one.kind,
            SIGNATURE: sign(secret, one.body, now // 1000, *older),
        }
        assert self._poster is not None, "a part without one sends by other means"
        return await self._poster.post(hook.url, one.body, headers)

    def _why_no_secret(self, hook: Hook) -> str:
        if variable_of(hook):
            return "the variable that holds its secret is not set"
        place = self._key.place
        return f"its secret cannot be made: {place} is missing, or not the key it was made with"

    def _after(self, one: WebhookDelivery, posted: SendResult) -> WebhookDelivery:
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
        if now >= end or posted.refused:
            return replace(tried, state="dead", due=None)
        pause = max(self._pause_ms(tried.attempts), int(1000 * posted.wait_seconds))
        return replace(tried, due=min(now + pause, end))

    def _pause_ms(self, attempts: int) -> int:
        """Twice as long each time, with chance in it so that many do not come back at once."""
        most = min(BACKOFF_MOST, BACKOFF_FIRST * 2 ** min(attempts - 1, 20))
        return int(1000 * most * (0.5 + 0.5 * self._dice()))

    def _tell(self, hook: Hook, after: WebhookDelivery) -> None:
        self.attempts.add(("taken" if after.state == "done" else "failed",))
        if after.state == "dead":
            name = delivery_id(after.hook, after.run, after.seq)
            log.error("webhook %s: gave up on %s: %s", hook.id, name, after.last_error)

    async def _sweep(self) -> None:
        now = self._clock.now()
        if now - self._swept_at < SWEEP_MS:
            return
        before = now - self._kept_ms
        gone = await asyncio.to_thread(self._store.forget_deliveries, before, SWEPT_AT_ONCE)
        if gone < SWEPT_AT_ONCE:  # else there is more, for the next round
            self._swept_at = now
