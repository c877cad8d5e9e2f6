"""What a webhook is told: rows of the log, turned into the deliveries that a hook asked for.

Events have the names that `anabranch events` shows. Those of loops and jobs depend on what came
before in their run; for hooks that want such events the run is followed from its first event on.
For all others a row that cannot hold anything wanted is not even decoded.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec.structs import replace

from anabranch.errors import AnabranchError, DamagedRun, InputError
from anabranch.kernel import events as e
from anabranch.net.problems import did_you_mean
from anabranch.operations.read.event_view import SHOWN_KINDS, EventRecord, EventView
from anabranch.runtime.live_run import history
from anabranch.runtime.nets import Nets
from anabranch.store.hook_ports import Entry, Hook, WebhookDelivery
from anabranch.store.ports import Head, Record, Store

#: Kinds of the log that are shown under other names.
_RENAMED = frozenset({"loop.opened", "loop.shard_scheduled", "loop.shard_closed", "loop.settled"})
_FOLLOWED = ("loop.", "job.")  # their names depend on what came before
RUNS_FOLLOWED = 256
log = logging.getLogger("anabranch.webhooks")
BYTES_AT_ONCE = 8 * 1024 * 1024  # of bodies; memory stays bounded however much there is to tell
KINDS = tuple(
    sorted({str(each.__struct_config__.tag) for each in e.Event.__args__} - _RENAMED)
) + tuple(SHOWN_KINDS)  # fmt: skip


def checked_kinds(given: Sequence[str]) -> tuple[str, ...]:
    """Kinds of events; `run.*` stands for all that begin so, `*` for all."""
    if not given:
        raise InputError("a webhook needs kinds, such as run.finished", code="webhook_kinds")
    for kind in given:
        if not any(_fits(known, kind) for known in KINDS):
            hint = did_you_mean(kind, KINDS) or "docs/events.md lists them"
            raise InputError(
                f"there is no event of kind {kind!r:.60}: {hint}", code="webhook_kinds"
            )
    return tuple(dict.fromkeys(given))


def _fits(kind: str, pattern: str) -> bool:
    if pattern == "*":
        return True
    return fnmatchcase(kind, pattern) if pattern.endswith(".*") else kind == pattern


def delivery_id(hook: str, run: str, seq: int) -> str:
    """The same for every attempt, and for ever: receivers drop what they have seen."""
    return f"{hook}:{run}:{seq}"


def concerns(hook: Hook, head: Head) -> bool:
    """Whether events of this run are what the hook asked for, whichever they are."""
    return (
        (hook.dialect is None or hook.dialect == head.dialect)
        and (hook.name is None or hook.name == head.name)
        and all(head.labels.get(key) == value for key, value in hook.labels.items())
    )


class _Wish:
    """One hook's wishes, prepared."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.wanted = frozenset(
            kind for kind in KINDS if any(_fits(kind, each) for each in hook.kinds)
        )
        self.follows = any(kind.startswith(_FOLLOWED) for kind in self.wanted)
        self.marks = tuple(f'["{kind}"'.encode() for kind in self.wanted)

    def may_want(self, entry: Entry) -> bool:
        return self.follows or any(mark in entry.events for mark in self.marks)


class WebhookMatcher:
    """Looks through rows for hooks. Blocking: call it from a thread, one call at a time."""

    def __init__(self, store: Store, nets: Nets, body_bytes: int) -> None:
        self._store = store
        self._nets = nets
        self._body_bytes = body_bytes
        self._followed: OrderedDict[tuple[str, str], EventView] = OrderedDict()

    def find(
        self, hook: Hook, entries: Iterable[Entry], now: int, bytes_max: int = BYTES_AT_ONCE
    ) -> tuple[list[WebhookDelivery], int]:
        """What the hook wants of these rows, and the position up to which they were looked at:
        the last one, or an earlier one where there is much to tell."""
        wish = _Wish(hook)
        found: list[WebhookDelivery] = []
        position = size = 0
        for entry in entries:
            if size > bytes_max:
                break
            told = self._looked_at(entry, wish, now) if wish.may_want(entry) else []
            found += told
            size += sum(len(one.body) for one in told)
            position = entry.position
        return found, position

    def _looked_at(self, entry: Entry, wish: _Wish, now: int) -> list[WebhookDelivery]:
        """A row that cannot be read is passed over: the rows of other runs stand behind it."""
        try:
            return self._wanted(entry, wish, now)
        except DamagedRun as damage:
            log.error("webhook %s gets no notification: %s", wish.hook.id, damage.message)
            return []

    def _wanted(self, entry: Entry, wish: _Wish, now: int) -> list[WebhookDelivery]:
        head = self._store.head(entry.run)
        if head is None or not concerns(wish.hook, head):
            return []  # purged meanwhile: a purge waits for hooks that have yet to look
        return [
            self._delivery(wish.hook, head, record, now)
            for record in self._records(entry, head, wish)
            if record.kind in wish.wanted
        ]

    def _records(self, entry: Entry, head: Head, wish: _Wish) -> list[EventRecord]:
        try:
            private = self._nets.get(head.definition).private
        except AnabranchError:  # nobody knows any more which of its keys are private
            return [replace(each, fields={}) for each in self._shown(entry, "", wish)]
        return self._shown(entry, private, wish)

    def _shown(self, entry: Entry, private: str, wish: _Wish) -> list[EventRecord]:
        if wish.follows:
            shown = self._follow(wish.hook.id, entry, private)
        else:
            shown = EventView(entry.run, private)
            shown.seq = entry.first_seq - 1
        row = Record(entry.first_seq, entry.count, entry.at, entry.events)
        return [
            shown.record(at, event) for at, event in history([row], entry.first_seq - 1, entry.run)
        ]

    def _follow(self, hook: str, entry: Entry, private: str) -> EventView:
        """What came before in this run, from memory or from its log."""
        key = hook, entry.run
        shown = self._followed.pop(key, None)
        if shown is None or shown.seq != entry.first_seq - 1:
            shown = EventView(entry.run, private)
            if entry.first_seq > 1:
                shown.skip(
                    history(self._store.read(entry.run), run=entry.run)[: entry.first_seq - 1]
                )
        self._followed[key] = shown
        if len(self._followed) > RUNS_FOLLOWED:
            self._followed.popitem(last=False)
        return shown

    def _delivery(self, hook: Hook, head: Head, record: EventRecord, now: int) -> WebhookDelivery:
        notice = {
            "id": delivery_id(hook.id, head.run, record.seq),
            "hook": hook.id,
            "kind": record.kind,
            "run": head.run,
            "seq": record.seq,
            "at": record.at,
            "time": _time(record.at),
            "name": head.name,
            "dialect": head.dialect,
            "labels": dict(head.labels),
            "fields": record.fields,
        }
        return WebhookDelivery(
            hook=hook.id,
            run=head.run,
            seq=record.seq,
            kind=record.kind,
            body=self._body(notice),
            found_at=now,
        )

    def _body(self, notice: dict[str, Any]) -> bytes:
        """Too large a one says so, and where the whole of it is."""
        body = msgspec.json.encode(notice)
        if len(body) <= self._body_bytes:
            return body
        after = f"/api/v1/runs/{notice['run']}/events?after={notice['seq'] - 1}&limit=1"
        short = {**notice, "fields": None, "omitted": {"bytes": len(body), "get": after}}
        return msgspec.json.encode(short)


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
