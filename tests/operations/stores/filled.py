"""A SQLite store with something in every table, made by an engine and through the ports."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anabranch
from anabranch.dialects.schedule import read_schedule
from anabranch.kernel import stimuli as s
from anabranch.operations.access.credentials import CredentialDraft
from anabranch.operations.schedules.schedule import Schedule, Target, record_of
from anabranch.runtime.messages.codec import write_message
from anabranch.settings import Settings
from anabranch.store.access_ports import AccessToken, AuditEntry, KeptAnswer
from anabranch.store.admission_ports import Admission
from anabranch.store.catalog_ports import CatalogEntry
from anabranch.store.grant_ports import Grant
from anabranch.store.hook_ports import Hook, WebhookDelivery
from anabranch.store.ports import Batch, DefinitionFilter, Hold
from anabranch.store.record_ports import NamedRecord
from anabranch.store.relational.connection import Row
from anabranch.store.relational.tables import EVERY_TABLE
from anabranch.store.relational.transfer import Source
from anabranch.store.sqlite.store import SqliteStore
from anabranch.store.sqlite.transfer import SqliteSource
from anabranch.testing.store_suite.samples import NOW, sha256
from anabranch.testing.store_suite.work_logs import a_log_row

from ..support import playbook, run, step

KEY = "a key for tests that is long enough to be one"
GATE = playbook(
    step("ask", "decision", "end", ask="Ship it?"), step("end", "noop", result="shipped")
)
DONE = playbook(step("a", "noop", "b"), step("b", "noop", "c"), step("c", "noop", result="done"))
LARGE = playbook(step("make", "noop", result="{{ 'x' * 100000 }}"))
GATES = 5


def settings_of(store: str | Path, **more: Any) -> Settings:
    return Settings(store=str(store), secret_key=KEY, snapshot_every=4, **more)


def fill(path: Path) -> None:
    child = path.with_name("child.json")
    child.write_text(GATE, encoding="utf-8")
    parent = playbook(step("call", "playbook", path=str(child), return_step="end"))
    run(_runs(path, parent))
    with closing(SqliteStore(path)) as store:
        _access(store)
        _hooks(store)
        _rest(store)
        store.append_logs([a_log_row("done0", 1), a_log_row("done0", 3, "ż \0", job="2.0")])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO sealed VALUES ('gate0', 'password', ?)", (b'"s3cret \\u0000"',))


async def _runs(path: Path, parent: str) -> None:
    async with anabranch.Engine(settings=settings_of(path)) as engine:
        for number in range(GATES):
            await engine.start(GATE, run=f"gate{number}", labels={"n": f"{number} \0 ż"})
            if number < 2:
                await engine.start(DONE, run=f"done{number}")
        await engine.start(LARGE, run="large")
        await engine.start(parent, run="parent")
        for name in ("done0", "large"):
            await engine.wait(name)
        while not (children := _children(path)):
            await asyncio.sleep(0.01)
        await engine.wait(children[0], standing=True)
        engine.credentials.add(
            CredentialDraft(name="db", type="bearer", data={"token": "t0ken"}), "ann"
        )


def _children(path: Path) -> list[str]:
    with closing(SqliteStore(path, read_only=True)) as store:
        return [head.run for head in store.unfinished() if head.parent]


def _access(store: SqliteStore) -> None:
    for number, revoked in enumerate((None, NOW)):
        store.add_token(
            AccessToken(
                id=f"t{number}",
                digest=f"{number}" * 64,
                name="kim",
                scopes=("read", "work"),
                created_at=NOW,
                revoked_at=revoked,
                pools=("gpu",),
            )
        )
    store.add_audit([AuditEntry(at=NOW + n, actor="ann", action="x", detail="ż") for n in range(7)])
    store.forget_access(NOW, NOW + 3)  # the counter goes on all the same
    open_key = KeptAnswer(actor="kim", key="k1", body="b", holder="h", expires_at=NOW)
    store.claim_key(open_key, 0)
    kept = KeptAnswer(
        actor="kim", key="k2", body="b", holder="h", expires_at=NOW, status=201, answer=b"\0{}"
    )
    store.claim_key(kept, 0)
    store.keep_answer(kept)


def _hooks(store: SqliteStore) -> None:
    """One has seen everything, one nothing, one is off and stopped halfway."""
    last = store.positions()[0]
    for name, cursor, enabled in (("ahead", last, True), ("new", 0, True), ("off", 5, False)):
        store.add_hook(
            Hook(
                id=name,
                url="https://example.org/",
                secret="env:SECRET",
                kinds=("run.*",),
                labels={"a": "b"},
                enabled=enabled,
                created_at=NOW,
                cursor=cursor,
            )
        )
    found = [
        WebhookDelivery(hook="ahead", run="done0", seq=n, kind="run.x", body=b"{}", found_at=NOW)
        for n in (1, 2, 3)
    ]
    store.advance_hook("ahead", last, last, found)
    (due,) = store.due_deliveries("ahead", NOW, 10)
    fields = {"state": "done", "attempts": 1, "last_at": NOW, "last_status": 200}
    store.settle_delivery(WebhookDelivery(**{**_fields(due), **fields}), NOW)


def _rest(store: SqliteStore) -> None:
    (card, *_) = store.definitions(DefinitionFilter())
    entry = CatalogEntry(
        path="a/b", version=1, fingerprint=card.fingerprint, name=card.name, dialect=card.dialect
    )
    store.add_catalog([entry])
    for owner in ("0xa", "0xb"):
        store.take_session_number(owner, "gate1")
    store.put_record(NamedRecord(family="sample", name="ż", body=b'{"a":"\\u0000"}', due=NOW))
    spec = read_schedule({"cron": "0 3 * * *", "timezone": "Europe/Berlin", "jitter": "5m"})
    nightly = Schedule(name="nightly", spec=spec, target=Target(path="a/b"), next_tick=NOW)
    store.put_record(record_of(nightly, NOW))
    asked = [
        Admission(run=f"gate{n}", key="ż[a]", limit=1, priority=n, asked_at=NOW) for n in (0, 1)
    ]
    store.admit((), NOW, asked=asked)
    grant = Grant(rid="r", scope=1, grantee="0xa", owner="0xb", rights=3, expires_at=NOW)
    store.put_grants([grant])
    store.put_payload(sha256(b"kept"), b"kept", Hold(sha256(b"kept"), "gate0", until=NOW))
    said = write_message(s.Pause("ann", "later"))
    first = store.post("gate3", said, NOW)
    store.commit(Batch(answers={first: b'{"ok": true}'}))
    store.post("gate4", said, NOW)


def _fields(one: WebhookDelivery) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__struct_fields__}


# -- what is in a store ----------------------------------------------------------------------


@contextmanager
def opened(store: str | Path) -> Iterator[Source]:
    if "://" in str(store):
        from anabranch.store.postgres.transfer import PostgresSource

        with closing(PostgresSource(str(store))) as source:
            yield source
    else:
        with closing(SqliteSource(str(store))) as file:
            yield file


def rows_of(store: str | Path) -> dict[str, list[Row]]:
    """Everything, but for the line that a copy itself leaves in the audit log."""
    with opened(store) as source:
        found = {table.name: list(source.rows(table)) for table in EVERY_TABLE}
    found["audit"] = [row for row in found["audit"] if row[3] != "store.copy"]
    return found


def unseen_of(store: str | Path) -> dict[str, set[tuple[str, int]]]:
    """Of each webhook the rows of the log that it has not looked at."""
    with opened(store) as source:
        ends = source.ends()
        return {
            hook: {
                (row[0], row[1])
                for partition, end in ends.items()
                for row in _log(source, partition, seen.get(partition, 0), end)
            }
            for hook, seen in source.cursors().items()
        }


def order_of(store: str | Path) -> dict[str, list[int]]:
    """Of each run the numbers of its events, in the order in which they are told."""
    found: dict[str, list[int]] = {}
    with opened(store) as source:
        for partition, end in source.ends().items():
            for row in _log(source, partition, 0, end):
                found.setdefault(row[0], []).append(row[1])
    return found


def counters_of(store: str | Path) -> dict[str, int]:
    with opened(store) as source:
        return {
            table.name: source.counter(table)
            for table in EVERY_TABLE
            if table.counter and table.name != "audit"
        }


def _log(source: Source, partition: int, after: int, end: int) -> Iterator[Row]:
    while True:
        rows, after = source.log_page(partition, after, end)
        if not rows:
            return
        yield from rows
