"""`store check` of a PostgreSQL store finds what was changed in it, and names the run; what only a
key can tell is told for both databases."""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.operations.access.secret_key import SecretKey
from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.stores.check import StoreReport, check_store
from anabranch.operations.stores.copy import copy_store
from anabranch.operations.stores.opening import inspect_store
from anabranch.operations.stores.records import wrong_with_record

from .filled import KEY, fill, settings_of

psycopg = pytest.importorskip("psycopg")
PARTITIONS = 4


def quietly(_what: str, _done: int, _total: int) -> None:
    """Progress that no one looks at."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory, postgres: str) -> tuple[str, str]:
    """The same in a file and in a schema, whose tables each test changes and puts back."""
    path = tmp_path_factory.mktemp("checked") / "runs.db"
    fill(path)
    joint = "&" if "?" in postgres else "?"
    address = f"{postgres}{joint}schema=check_{secrets.token_hex(6)}"
    settings = settings_of("", store_partitions=PARTITIONS)
    copy_store(settings, str(path), address, quietly)
    return str(path), address


def checked(store: str, key: str = KEY) -> StoreReport:
    with inspect_store(settings_of(store)) as inspection:
        return check_store(inspection, compiler(), quietly, SecretKey(key))


def test_a_sound_store_is_found_sound(stores: tuple[str, str]) -> None:
    for store in stores:
        report = checked(store)
        assert report.problems == []
        assert (report.runs, report.payloads, report.definitions) == (10, 2, 4)
        assert report.records == 2


#: Part → what is changed, and the run that the problem names.
CHANGES: dict[str, tuple[str, str | None]] = {
    "payload": ("UPDATE payloads SET content = ''::bytea", ""),
    "definition": ("UPDATE definitions SET source = source || '# changed'", ""),
    "hold": ("DELETE FROM payloads", None),
    "log": ("DELETE FROM heads WHERE run = 'done0'", "done0"),
    "head": ("UPDATE heads SET seq = seq + 1 WHERE run = 'gate1'", "gate1"),
    "snapshot": ("UPDATE snapshots SET state = '{}' WHERE run = 'done1'", "done1"),
    "sealed": ("UPDATE sealed SET value = '{'", "gate0"),
    "credential": ("UPDATE credentials SET sealed = repeat('A', 64)", ""),
    "message": ("UPDATE mailbox SET body = '[]' WHERE answer IS NULL", "gate4"),
    "counter": (
        "INSERT INTO audit (number, at, actor, action, subject, outcome, address, detail) "
        "OVERRIDING SYSTEM VALUE VALUES (1000, 0, '', '', '', '', '', '')",
        "",
    ),
    "record": ("UPDATE named_records SET due = due + 1 WHERE family = 'schedule'", ""),
    "webhook": ("UPDATE hook_cursors SET position = position + 1 WHERE hook = 'ahead'", ""),
}
#: What only partitions can have: another statement for each way to be wrong.
PLACES: tuple[tuple[str, str, str | None], ...] = (
    ("UPDATE heads SET partition = (partition + 1) % 4 WHERE run = 'gate2'", "partition", "gate2"),
    (
        "UPDATE heads SET partition = (partition + 1) % 4 WHERE parent IS NOT NULL",
        "partition",
        None,
    ),
    ("UPDATE log SET number = -last_seq WHERE run = 'done0'", "partition", "done0"),
    ("UPDATE partitions SET number = number - 1 WHERE number > 0", "partition", ""),
    ("DELETE FROM partitions WHERE partition = 3", "partition", ""),
    ("DELETE FROM hook_cursors WHERE partition = 2", "webhook", ""),
    ("UPDATE deliveries SET due = NULL", "webhook", "done0"),
    ("UPDATE mailbox SET partition = (partition + 1) % 4 WHERE answer IS NULL", "message", "gate4"),
    ("UPDATE mailbox SET partition = 77 WHERE answer IS NULL", "message", "gate4"),
)
EVERY = [(change, part, run) for part, (change, run) in CHANGES.items()] + list(PLACES)


@pytest.mark.parametrize(("change", "part", "run"), EVERY)
def test_a_check_finds_what_was_changed_on_postgresql(
    change: str,
    part: str,
    run: str | None,
    stores: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Inside a transaction that is rolled back: the check reads through the same connection."""
    from anabranch.store.postgres import transfer
    from anabranch.store.postgres.address import read_address

    address = read_address(stores[1])
    with closing(transfer.connect_for_long(address)) as db:
        db.execute("BEGIN")
        assert db.execute(change).rowcount > 0
        monkeypatch.setattr(transfer, "connect_for_long", lambda _address: Kept(db))
        found = {(one.part, one.run) for one in checked(stores[1]).problems}
        db.execute("ROLLBACK")
    assert part in {one for one, _ in found}
    assert run is None or (part, run) in found


#: What a schedule was changed to, and the words that name it.
DAMAGED: tuple[tuple[dict[str, Any], list[str]], ...] = (
    ({"body": b"{"}, ["nightly is no JSON"]),
    ({"body": b"{}"}, ["nightly cannot be read", "name"]),
    ({"body": b'{"name":"other"}'}, ["nightly cannot be read"]),
    ({"name": "weekly"}, ["weekly calls itself 'nightly'"]),
    ({"due": None}, ["nightly is due at None, and its next tick is to begin at"]),
    ({"due": 5}, ["nightly is due at 5"]),
    ({"cron": "0 3 31 2 *"}, ["nightly has no timetable", "never comes"]),
    ({"timezone": "Europe/Berlim"}, ["nightly has no timetable", "Europe/Berlin"]),
    ({"version": 0}, ["nightly has the version 0"]),
)


@pytest.mark.parametrize(("change", "words"), DAMAGED)
def test_a_schedule_that_is_not_what_was_written_is_named(
    change: dict[str, Any], words: list[str], stores: tuple[str, str]
) -> None:
    with inspect_store(settings_of(stores[0])) as inspection:
        (record,) = [one for one in inspection.named_records() if one.family == "schedule"]
    assert wrong_with_record(record) == ""
    changed = dict(change)
    for key in ("cron", "timezone"):
        if key in changed:
            body = msgspec.json.decode(record.body)
            body["spec"][key] = changed.pop(key)
            changed["body"] = msgspec.json.encode(body)
    damaged = msgspec.structs.replace(record, **changed)
    said = f"{damaged.name} {wrong_with_record(damaged)}"
    assert [word for word in words if word not in said] == [], said


class Kept:
    """A connection that is inside a transaction already, and stays open."""

    def __init__(self, db: Any) -> None:
        self._db = db

    def execute(self, statement: str, given: Any = None) -> Any:
        beginning = statement.startswith("BEGIN")
        return self._db.execute("SELECT 1" if beginning else statement, given)

    def close(self) -> None:
        """It is closed by its owner."""


def test_what_is_sealed_with_another_key_is_named_and_without_a_key_it_is_noted(
    stores: tuple[str, str],
) -> None:
    for store in stores:
        (problem,) = checked(store, "another key that is long enough to be one").problems
        assert (problem.part, "credential db" in problem.message) == ("credential", True)
        with inspect_store(settings_of(store)) as inspection:
            missing = SecretKey(file=Path("/nowhere/at/all.key"))
            report = check_store(inspection, compiler(), quietly, missing)
        assert report.problems == []
        assert any("the credential db could not be opened" in note for note in report.notes)
