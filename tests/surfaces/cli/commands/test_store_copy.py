"""`store copy`, `store check` and `store migrate` at the terminal, also with PostgreSQL."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from anabranch.store.access_ports import AuditFilter
from anabranch.store.ports import Hold
from anabranch.store.sqlite import file
from anabranch.store.sqlite.store import SqliteStore
from anabranch.testing.store_suite.samples import sha256

from ..support import GATE, Here, Terminal

PostgresStore = pytest.importorskip("anabranch.store.postgres.store").PostgresStore
SchemaOf = Callable[[], str]


@pytest.fixture
def schema(postgres: str) -> SchemaOf:
    def new() -> str:
        joint = "&" if "?" in postgres else "?"
        return f"{postgres}{joint}schema=cli_{secrets.token_hex(6)}"

    return new


@pytest.fixture
def waiting(here: Here) -> None:
    here.write("gate.yaml", GATE)
    here.run("run", "gate.yaml", "--run-id", "gate")


@pytest.mark.usefixtures("waiting")
def test_a_copy_says_how_far_it_is_and_what_it_holds(here: Here, schema: SchemaOf) -> None:
    target = schema()
    done = here.ok("store", "copy", here.store, target, "--partitions", 4, "--json")
    told = [json.loads(line)["progress"] for line in done.err.splitlines() if line.startswith("{")]
    assert {"what", "done", "total"} == set(told[0])
    report = done.json
    assert (report["sound"], report["resumed"], report["check"]["runs"]) == (True, False, 1)
    assert {one["table"]: one["rows"] for one in report["tables"]}["heads"] == 1
    assert here.ok("store", "check", "--store", target, "--json").json["sound"]
    with closing(PostgresStore(target, read_only=True)) as store:
        assert store.partitions == 4
        (line,) = store.audit(AuditFilter(limit=1))
        assert (line.action, line.subject) == ("store.copy", str(here.store))
    back = here.ok("store", "copy", target, "back.db")
    assert "the same on both sides" in back.out
    assert here.ok("runs", "--store", "back.db", "--json").json[0]["status"] == "waiting"


@pytest.mark.usefixtures("waiting")
def test_a_copy_that_cannot_be_says_why_and_changes_nothing(here: Here, schema: SchemaOf) -> None:
    target = schema()
    here.ok("store", "copy", here.store, target)
    refused = here.run("store", "copy", here.store, target, "--json")
    assert (refused.code, refused.json["problem"]["code"]) == (2, "store_not_empty")
    for words in (("no.db", "x.db"), (here.store, here.store), (":memory:", "x.db")):
        assert here.run("store", "copy", *words).code == 2
    assert not (here.folder / "x.db").exists()
    secret = "postgresql://ann:s3cret@127.0.0.1:9/none"
    away = here.run("store", "copy", here.store, secret)
    assert (away.code, "s3cret" in away.err + away.out) == (2, False)
    refused = here.run("store", "copy", here.store, "x.db", "--server", "http://127.0.0.1:9")
    assert refused.code == 2


@pytest.mark.usefixtures("waiting")
def test_a_copy_of_a_damaged_store_is_made_and_ends_with_1(here: Here) -> None:
    with closing(sqlite3.connect(here.store)) as db, db:
        db.execute("UPDATE heads SET status = 'no such'")
    done = here.run("store", "copy", here.store, "copy.db")
    assert (done.code, "run gate: head" in done.out) == (1, True)
    assert here.run("store", "check", "--store", "copy.db").code == 1


def test_the_file_verbs_name_what_postgresql_has_instead(here: Here, schema: SchemaOf) -> None:
    address = schema()
    for words, tool in (
        (("backup", "x.db"), "pg_dump"),
        (("restore", "x.db"), "pg_restore"),
        (("compact",), "VACUUM FULL"),
    ):
        refused = here.run("store", *words, "--store", address)
        assert (refused.code, tool in refused.err) == (2, True)
    missing = here.run("store", "check", "--store", address)
    assert (missing.code, "there is no store" in missing.err) == (2, True)


def test_migrate_brings_a_store_up_to_date_and_makes_none_by_mistake(
    here: Here, schema: SchemaOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert here.run("store", "migrate").code == 2
    assert not here.store.exists()
    address = schema()
    made = here.ok("store", "migrate", "--store", address, "--json").json
    assert (made["version_before"], made["version"] > 0) == (0, True)
    assert "already" in here.ok("store", "migrate", "--store", address).out
    with monkeypatch.context() as older:
        older.setattr(file, "MIGRATIONS", file.MIGRATIONS[:-1])
        SqliteStore(here.store).close()
    refused = here.run("runs")
    assert (refused.code, "anabranch store migrate" in refused.err) == (2, True)
    done = here.ok("store", "migrate", "--json").json
    assert done["version"] == done["version_before"] + 1 == len(file.MIGRATIONS)
    with closing(SqliteStore(here.store, read_only=True)) as store:
        assert [line.action for line in store.audit(AuditFilter())] == ["store.migrate"]


# -- killed ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_copy_that_is_killed_goes_on_with_the_same_command(
    terminal: Terminal, here: Here, schema: SchemaOf
) -> None:
    """Killed among the payloads, which come in several pages, and once more in the comparison."""
    contents = large(terminal.store)
    target = schema()
    words = ("store", "copy", terminal.store, target, "--json")
    for moment in ("now payloads", "compared"):
        kill_at(terminal, moment, *words)
        refused = here.run("runs", "--store", target)
        assert (refused.code, "anabranch store copy" in refused.err) == (2, True)
    done = here.ok(*words).json
    assert (done["resumed"], done["sound"]) == (True, True)
    with closing(PostgresStore(target, read_only=True)) as store:
        for hashed, content in contents.items():
            assert store.payload(hashed) == content
    back = terminal.folder / "back.db"
    kill_at(terminal, "now payloads", "store", "copy", target, back, "--json")
    assert here.ok("store", "copy", target, back, "--json").json["resumed"]
    assert here.ok("store", "check", "--store", back, "--json").json["payloads"] == len(contents)


def large(path: Path) -> dict[str, bytes]:
    """A store with payloads of 20 MB, in pages of 8."""
    contents = {sha256(one): one for one in (os.urandom(1_000_000) for _ in range(20))}
    with closing(SqliteStore(path)) as store:
        for hashed, content in contents.items():
            store.put_payload(hashed, content, Hold(hashed, "", "permanent"))
    return contents


def kill_at(terminal: Terminal, moment: str, *words: object) -> None:
    with terminal.begin(*words) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if moment in line:
                process.kill()
                break
        else:
            raise AssertionError(f"it ended before {moment}")
