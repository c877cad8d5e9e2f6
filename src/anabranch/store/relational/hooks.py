"""The part of a relational store that is about webhooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anabranch.errors import StoreError
from anabranch.store.checks import hook_exists
from anabranch.store.hook_ports import Backlog, DeliveryFilter, Entry, Hook, WebhookDelivery
from anabranch.store.relational.connection import RelationalPart
from anabranch.store.relational.errors import CONSTRAINT


class RelationalHooks(RelationalPart):
    def feed(self, after: int, limit: int = 200, partition: int = 0) -> list[Entry]:
        given = {"after": after, "limit": max(limit, 0), "partition": partition}
        return [Entry(*row) for row in self._rows(self.sql["feed"], given)]

    def positions(self) -> Mapping[int, int]:
        return dict(self._rows(self.sql["positions"], {}))

    def runs_after(self, position: int, partition: int = 0) -> set[str]:
        given = {"position": position, "partition": partition}
        return {run for (run,) in self._rows(self.sql["runs_after"], given)}

    def run_counts(self) -> list[tuple[str, str, int]]:
        return [tuple(row) for row in self._rows(self.sql["run_counts"], {})]

    def add_hook(self, hook: Hook, *, from_now: bool = False) -> None:
        try:
            with self._transaction() as db:
                db.execute(self.sql["add_hook"], _fields(hook))
                if from_now:
                    db.execute(self.sql["hook_from_now"], {"id": hook.id})
        except StoreError as error:
            if error.code == CONSTRAINT and self.hook(hook.id) is not None:
                raise hook_exists(hook.id) from None
            raise

    def hook(self, hook_id: str) -> Hook | None:
        rows = self._rows(self.sql["hook"], {"id": hook_id})
        return hook_of(rows[0]) if rows else None

    def hooks(self) -> list[Hook]:
        return [hook_of(row) for row in self._rows(self.sql["hooks"], {})]

    def change_hook(self, hook: Hook) -> bool:
        with self._transaction(wipe=True) as db:  # there may have been a secret in it
            return db.execute(self.sql["change_hook"], _fields(hook)).rowcount == 1

    def drop_hook(self, hook_id: str) -> bool:
        with self._transaction(wipe=True) as db:
            self._alone(db, *_deliveries_of(hook_id))
            db.execute(self.sql["drop_deliveries"], {"id": hook_id})
            return db.execute(self.sql["drop_hook"], {"id": hook_id}).rowcount == 1

    def cursors(self, hook_id: str) -> Mapping[int, int]:
        return dict(self._rows(self.sql["cursors"], {"id": hook_id}))

    def advance_hook(
        self,
        hook_id: str,
        seen: int,
        to: int,
        found: Sequence[WebhookDelivery],
        partition: int = 0,
    ) -> bool:
        move = {"id": hook_id, "seen": seen, "to": to, "partition": partition}
        with self._transaction() as db:
            self._alone(db, *_deliveries_of(hook_id))
            if db.execute(self.sql["advance_hook"], move).rowcount != 1:
                return False
            rows = [msgspec.structs.asdict(one) for one in found]
            db.executemany(self.sql["add_delivery"], rows)
            return True

    def due_deliveries(self, hook_id: str, now: int, limit: int) -> list[WebhookDelivery]:
        wanted = {"hook": hook_id, "now": now, "limit": max(limit, 0)}
        return [delivery_of(row) for row in self._rows(self.sql["due_deliveries"], wanted)]

    def settle_delivery(self, after: WebhookDelivery, now: int) -> bool:
        over = after.state != "pending"
        fields = {**msgspec.structs.asdict(after), "due": None if over else after.due}
        with self._transaction() as db:
            self._alone(db, *_deliveries_of(after.hook))
            if db.execute(self.sql["settle_delivery"], fields).rowcount != 1:
                return False
            if over:
                db.execute(self.sql["let_next"], {**fields, "now": now})
            return True

    def redeliver(self, hook_id: str, run: str, seq: int, now: int) -> bool:
        fields = {"hook": hook_id, "run": run, "seq": seq, "now": now}
        with self._transaction() as db:
            self._alone(db, *_deliveries_of(hook_id))
            found = db.execute(self.sql["redeliver"], fields).rowcount
            return found == 1 or db.execute(self.sql["hurry"], fields).rowcount == 1

    def redeliver_dead(self, hook_id: str, now: int, limit: int) -> int:
        fields = {"hook": hook_id, "now": now, "limit": max(limit, 0)}
        with self._transaction() as db:
            self._alone(db, *_deliveries_of(hook_id))
            db.execute(self.sql["hurry_all"], fields)
            count = db.execute(self.sql["revive_dead"], fields).rowcount
            db.execute(self.sql["let_first"], fields)
            return count

    def delivery(self, hook_id: str, run: str, seq: int) -> WebhookDelivery | None:
        rows = self._rows(self.sql["delivery"], {"hook": hook_id, "run": run, "seq": seq})
        return delivery_of(rows[0]) if rows else None

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
        rows = self._rows("\n".join(self.sql[part] for part in parts), fields)
        return [delivery_of(row) for row in rows]

    def backlog(self) -> Mapping[str, Backlog]:
        rows = self._rows(self.sql["backlog"], {})
        return {hook: Backlog(pending, dead, oldest) for hook, pending, dead, oldest in rows}

    def forget_deliveries(self, before: int, limit: int = 1000) -> int:
        with self._transaction() as db:
            fields = {"before": before, "limit": max(limit, 0)}
            return db.execute(self.sql["forget_deliveries"], fields).rowcount


def _deliveries_of(hook_id: str) -> tuple[str, str]:
    """Who changes which delivery of a run is due must see what others do to the rest of them: two
    at once would each leave it to the other, and none would be due. It is the first lock of its
    transaction."""
    return "deliveries", hook_id


def _fields(hook: Hook) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(hook),
        "kinds": msgspec.json.encode(hook.kinds).decode(),
        "labels": msgspec.json.encode(dict(hook.labels)).decode(),
    }


def hook_of(row: Sequence[Any]) -> Hook:
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


def delivery_of(row: Sequence[Any]) -> WebhookDelivery:
    names = WebhookDelivery.__struct_fields__
    return WebhookDelivery(**dict(zip(names, row, strict=True)))
