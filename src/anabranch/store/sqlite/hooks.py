"""The part of the SQLite store that is about webhooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anabranch.errors import StoreError
from anabranch.store.hook_ports import Backlog, DeliveryFilter, Entry, Hook, WebhookDelivery
from anabranch.store.memory.hooks import hook_exists
from anabranch.store.sqlite.errors import CONSTRAINT
from anabranch.store.sqlite.file import STATEMENTS
from anabranch.store.sqlite.part import SqlitePart


class SqliteHooks(SqlitePart):
    def feed(self, after: int, limit: int = 200) -> list[Entry]:
        rows = self._rows(STATEMENTS["feed"], {"after": after, "limit": max(limit, 0)})
        return [Entry(*row) for row in rows]

    def probe_write(self) -> None:
        if self._held.damage is not None:
            raise self._held.damage
        with self._transaction() as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            db.execute("SAVEPOINT probe")
            db.execute(STATEMENTS["probe_room"])
            db.execute("ROLLBACK TO probe")
            db.execute(f"PRAGMA user_version = {version}")  # the same, but a page is written

    def position(self) -> int:
        return int(self._rows(STATEMENTS["position"], {})[0][0])

    def runs_after(self, position: int) -> set[str]:
        return {run for (run,) in self._rows(STATEMENTS["runs_after"], {"position": position})}

    def run_counts(self) -> list[tuple[str, str, int]]:
        return [tuple(row) for row in self._rows(STATEMENTS["run_counts"], {})]

    def add_hook(self, hook: Hook) -> None:
        try:
            with self._transaction() as db:
                db.execute(STATEMENTS["add_hook"], _fields(hook))
        except StoreError as error:
            if error.code == CONSTRAINT and self.hook(hook.id) is not None:
                raise hook_exists(hook.id) from None
            raise

    def hook(self, hook_id: str) -> Hook | None:
        rows = self._rows(STATEMENTS["hook"], {"id": hook_id})
        return _hook(rows[0]) if rows else None

    def hooks(self) -> list[Hook]:
        return [_hook(row) for row in self._rows(STATEMENTS["hooks"], {})]

    def change_hook(self, hook: Hook) -> bool:
        with self._transaction(wipe=True) as db:  # there may have been a secret in it
            return db.execute(STATEMENTS["change_hook"], _fields(hook)).rowcount == 1

    def drop_hook(self, hook_id: str) -> bool:
        with self._transaction(wipe=True) as db:
            db.execute(STATEMENTS["drop_deliveries"], {"id": hook_id})
            return db.execute(STATEMENTS["drop_hook"], {"id": hook_id}).rowcount == 1

    def advance_hook(
        self, hook_id: str, seen: int, to: int, found: Sequence[WebhookDelivery]
    ) -> bool:
        move = {"id": hook_id, "seen": seen, "to": to}
        with self._transaction() as db:
            if db.execute(STATEMENTS["advance_hook"], move).rowcount != 1:
                return False
            rows = [msgspec.structs.asdict(one) for one in found]
            db.executemany(STATEMENTS["add_delivery"], rows)
            return True

    def due_deliveries(self, hook_id: str, now: int, limit: int) -> list[WebhookDelivery]:
        wanted = {"hook": hook_id, "now": now, "limit": max(limit, 0)}
        return [_delivery(row) for row in self._rows(STATEMENTS["due_deliveries"], wanted)]

    def settle_delivery(self, after: WebhookDelivery, now: int) -> bool:
        over = after.state != "pending"
        fields = {**msgspec.structs.asdict(after), "due": None if over else after.due}
        with self._transaction() as db:
            if db.execute(STATEMENTS["settle_delivery"], fields).rowcount != 1:
                return False
            if over:
                db.execute(STATEMENTS["let_next"], {**fields, "now": now})
            return True

    def redeliver(self, hook_id: str, run: str, seq: int, now: int) -> bool:
        fields = {"hook": hook_id, "run": run, "seq": seq, "now": now}
        with self._transaction() as db:
            found = db.execute(STATEMENTS["redeliver"], fields).rowcount
            return found == 1 or db.execute(STATEMENTS["hurry"], fields).rowcount == 1

    def redeliver_dead(self, hook_id: str, now: int, limit: int) -> int:
        fields = {"hook": hook_id, "now": now, "limit": max(limit, 0)}
        with self._transaction() as db:
            db.execute(STATEMENTS["hurry_all"], fields)
            count = db.execute(STATEMENTS["revive_dead"], fields).rowcount
            db.execute(STATEMENTS["let_first"], fields)
            return count

    def delivery(self, hook_id: str, run: str, seq: int) -> WebhookDelivery | None:
        rows = self._rows(STATEMENTS["delivery"], {"hook": hook_id, "run": run, "seq": seq})
        return _delivery(rows[0]) if rows else None

    def deliveries(self, wanted: DeliveryFilter) -> list[WebhookDelivery]:
        parts = ["list_deliveries"]
        fields: dict[str, Any] = {"hook": wanted.hook, "limit": max(wanted.limit, 0)}
        if wanted.state is not None:
            parts.append(f"list_deliveries_{wanted.state}")
        if wanted.run is not None:
            parts.append("list_deliveries_run")
            fields["run"] = wanted.run
        if wanted.before is not None:
            parts.append("list_deliveries_before")
            fields |= zip(("before_at", "before_run", "before_seq"), wanted.before, strict=True)
        parts.append("list_deliveries_order")
        rows = self._rows("\n".join(STATEMENTS[part] for part in parts), fields)
        return [_delivery(row) for row in rows]

    def backlog(self) -> Mapping[str, Backlog]:
        rows = self._rows(STATEMENTS["backlog"], {})
        return {hook: Backlog(pending, dead, oldest) for hook, pending, dead, oldest in rows}

    def forget_deliveries(self, before: int, limit: int = 1000) -> int:
        with self._transaction() as db:
            fields = {"before": before, "limit": max(limit, 0)}
            return db.execute(STATEMENTS["forget_deliveries"], fields).rowcount


def _fields(hook: Hook) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(hook),
        "kinds": msgspec.json.encode(hook.kinds).decode(),
        "labels": msgspec.json.encode(dict(hook.labels)).decode(),
    }


def _hook(row: Sequence[Any]) -> Hook:
    hook_id, url, secret, kinds, labels, dialect, name, enabled, created_at, cursor = row
    return Hook(
        id=hook_id,
        url=url,
        secret=secret,
        kinds=msgspec.json.decode(kinds, type=tuple[str, ...]),
        labels=msgspec.json.decode(labels, type=dict[str, str]),
        dialect=dialect,
        name=name,
        enabled=bool(enabled),
        created_at=created_at,
        cursor=cursor,
    )


def _delivery(row: Sequence[Any]) -> WebhookDelivery:
    names = WebhookDelivery.__struct_fields__
    return WebhookDelivery(**dict(zip(names, row, strict=True)))
