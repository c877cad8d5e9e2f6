"""The part of the reference store that is about webhooks."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from anabranch.store.checks import hook_exists
from anabranch.store.hook_ports import Backlog, DeliveryFilter, Entry, Hook, WebhookDelivery
from anabranch.store.memory.part import MemoryPart

if TYPE_CHECKING:
    from anabranch.store.ports import Head, Record

Key = tuple[str, str, int]  # hook, run, seq


class MemoryHooks(MemoryPart):
    """A part of `MemoryStore`."""

    if TYPE_CHECKING:
        _heads: dict[str, Head]

    def __init__(self) -> None:
        super().__init__()
        self._feed: list[Entry] = []
        self._position = 0
        self._hooks: dict[str, Hook] = {}
        self._deliveries: dict[Key, WebhookDelivery] = {}

    def _note(self, run: str, record: Record) -> None:
        """A row has been added to the log."""
        self._position += 1
        row = record.first_seq, record.count, record.at, record.events
        self._feed.append(Entry(self._position, run, *row))

    def _unnote(self, runs: set[str]) -> None:
        """The rows of these runs are gone; their positions are not given out again."""
        self._feed = [entry for entry in self._feed if entry.run not in runs]

    def feed(
        self,
        after: int,
        limit: int = 200,
        partition: int = 0,  # noqa: ARG002 - there is one
    ) -> list[Entry]:
        with self._open():
            start = bisect_right(self._feed, after, key=lambda entry: entry.position)
            return self._feed[start : start + max(limit, 0)]

    def probe_write(self) -> None:
        with self._open():
            pass

    def positions(self) -> Mapping[int, int]:
        with self._open():
            return {0: self._position}

    def runs_after(self, position: int, partition: int = 0) -> set[str]:  # noqa: ARG002
        with self._open():
            return {entry.run for entry in self._feed if entry.position > position}

    def run_counts(self) -> list[tuple[str, str, int]]:
        with self._open():
            counted = Counter((head.status, head.dialect) for head in self._heads.values())
        return sorted((*key, count) for key, count in counted.items())

    def add_hook(self, hook: Hook, *, from_now: bool = False) -> None:
        with self._open():
            if hook.id in self._hooks:
                raise hook_exists(hook.id)
            cursor = self._position if from_now else hook.cursor
            self._hooks[hook.id] = replace(hook, cursor=cursor)

    def cursors(self, hook_id: str) -> Mapping[int, int]:
        hook = self.hook(hook_id)
        return {0: hook.cursor} if hook is not None else {}

    def hook(self, hook_id: str) -> Hook | None:
        with self._open():
            return self._hooks.get(hook_id)

    def hooks(self) -> list[Hook]:
        with self._open():
            return sorted(self._hooks.values(), key=lambda hook: (hook.created_at, hook.id))

    def change_hook(self, hook: Hook) -> bool:
        with self._open():
            known = self._hooks.get(hook.id)
            if known is None:
                return False
            kept = replace(hook, cursor=known.cursor, created_at=known.created_at)
            self._hooks[hook.id] = kept
            return True

    def drop_hook(self, hook_id: str) -> bool:
        with self._open():
            for key in [key for key in self._deliveries if key[0] == hook_id]:
                del self._deliveries[key]
            return self._hooks.pop(hook_id, None) is not None

    def advance_hook(
        self,
        hook_id: str,
        seen: int,
        to: int,
        found: Sequence[WebhookDelivery],
        partition: int = 0,  # noqa: ARG002
    ) -> bool:
        with self._open():
            hook = self._hooks.get(hook_id)
            if hook is None or hook.cursor != seen:
                return False
            self._hooks[hook_id] = replace(hook, cursor=to)
            for one in found:
                due = None if self._waiting(one.hook, one.run) else one.found_at
                key = one.hook, one.run, one.seq
                self._deliveries.setdefault(key, replace(one, state="pending", due=due))
            return True

    def due_deliveries(self, hook_id: str, now: int, limit: int) -> list[WebhookDelivery]:
        with self._open():
            mine = [one for one in self._deliveries.values() if one.hook == hook_id]
        due = [(one.due, one.run, one.seq, one) for one in mine if one.due is not None]
        ready = sorted(item for item in due if item[0] <= now)
        return [item[-1] for item in ready[: max(limit, 0)]]

    def settle_delivery(self, after: WebhookDelivery, now: int) -> bool:
        with self._open():
            key = after.hook, after.run, after.seq
            known = self._deliveries.get(key)
            tried = after.attempts - 1
            if known is None or known.state != "pending" or known.attempts != tried:
                return False
            over = after.state != "pending"
            self._deliveries[key] = replace(
                known,
                state=after.state,
                attempts=after.attempts,
                due=None if over else after.due,
                last_at=after.last_at,
                last_status=after.last_status,
                last_error=after.last_error,
            )
            if over:
                self._let_next(after.hook, after.run, now)
            return True

    def _let_next(self, hook_id: str, run: str, now: int) -> None:
        waiting = self._waiting(hook_id, run)
        if waiting and all(one.due is None for one in waiting):
            first = min(waiting, key=lambda one: one.seq)
            self._deliveries[hook_id, run, first.seq] = replace(first, due=now)

    def _waiting(self, hook_id: str, run: str) -> list[WebhookDelivery]:
        return [
            one
            for one in self._deliveries.values()
            if one.hook == hook_id and one.run == run and one.state == "pending"
        ]

    def redeliver(self, hook_id: str, run: str, seq: int, now: int) -> bool:
        with self._open():
            known = self._deliveries.get((hook_id, run, seq))
            if known is None:
                return False
            if known.state == "pending":
                if known.due is None or known.due <= now:
                    return False
                self._deliveries[hook_id, run, seq] = replace(known, due=now)
                return True
            again = replace(known, state="pending", due=now, found_at=now, attempts=0)
            self._deliveries[hook_id, run, seq] = again
            return True

    def redeliver_dead(self, hook_id: str, now: int, limit: int) -> int:
        with self._open():
            mine = [one for one in self._deliveries.values() if one.hook == hook_id]
            for one in mine:
                if one.due is not None and one.due > now:
                    self._deliveries[hook_id, one.run, one.seq] = replace(one, due=now)
            dead = [one for one in mine if one.state == "dead"]
            dead.sort(key=lambda one: (one.found_at, one.run, one.seq))
            for one in dead[: max(limit, 0)]:
                again = replace(one, state="pending", due=None, found_at=now, attempts=0)
                self._deliveries[hook_id, one.run, one.seq] = again
            for run in {one.run for one in dead}:
                self._let_next(hook_id, run, now)
            return len(dead[: max(limit, 0)])

    def delivery(self, hook_id: str, run: str, seq: int) -> WebhookDelivery | None:
        with self._open():
            return self._deliveries.get((hook_id, run, seq))

    def deliveries(self, wanted: DeliveryFilter) -> list[WebhookDelivery]:
        with self._open():
            found = [one for one in self._deliveries.values() if _fits(one, wanted)]
        found.sort(key=lambda one: (one.found_at, one.run, one.seq), reverse=True)
        return found[: max(wanted.limit, 0)]

    def backlog(self) -> Mapping[str, Backlog]:
        with self._open():
            return {hook_id: self._backlog_of(hook_id) for hook_id in sorted(self._hooks)}

    def _backlog_of(self, hook_id: str) -> Backlog:
        mine = [one for one in self._deliveries.values() if one.hook == hook_id]
        pending = [one.found_at for one in mine if one.state == "pending"]
        dead = sum(one.state == "dead" for one in mine)
        return Backlog(len(pending), dead, min(pending, default=None))

    def forget_deliveries(self, before: int, limit: int = 1000) -> int:
        with self._open():
            over = [
                (one.last_at, key)
                for key, one in self._deliveries.items()
                if one.state != "pending" and one.last_at is not None and one.last_at < before
            ]
            gone = sorted(over)[: max(limit, 0)]
            for _, key in gone:
                del self._deliveries[key]
            return len(gone)


def _fits(one: WebhookDelivery, wanted: DeliveryFilter) -> bool:
    return (
        one.hook == wanted.hook
        and (wanted.state is None or one.state == wanted.state)
        and (wanted.run is None or one.run == wanted.run)
        and (wanted.before is None or (one.found_at, one.run, one.seq) < tuple(wanted.before))
    )
