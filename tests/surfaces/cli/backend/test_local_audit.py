"""Verbs at a store of this machine leave a line in its audit trail, as over HTTP, in the commit of
what they change."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from anabranch.errors import StoreError
from anabranch.kernel import stimuli as s
from anabranch.runtime.messages.codec import Sayable
from anabranch.store.access_ports import AuditFilter
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Store
from anabranch.store.record_ports import NamedRecord
from anabranch.store.sqlite import file
from anabranch.store.sqlite.store import SqliteStore
from anabranch.store.sqlite.transfer import SqliteTarget
from anabranch.surfaces.cli.backend.local.audit import ACTIONS, AuditLine
from anabranch.surfaces.http.resources.workflows import EXAMPLE as TEMPLATE
from anabranch.testing.store_suite.samples import refused

from ..support import ADMIT, GATE, HEAD, HELLO, Here

SAYS = "the audit trail takes no lines"
FAILS = f"""{HEAD}metadata: {{name: fails}}
workflow:
  - step: fail
    tool: {{kind: python, code: "raise ValueError('no')"}}
"""
WAITS = f"""{HEAD}metadata: {{name: waits}}
workflow:
  - step: wait
    tool: {{kind: wait, event: paid}}
"""
#: Verbs that change a store of this machine; whatever else is said to a run goes the way of these.
#: Names that the store gave out stand between the signs < and >.
VERBS = (
    "run hello.yaml",
    "redrive f1",
    "resume p1",
    "pause a1",
    "patch a1 go=yes",
    "cancel a1",
    "decide g1 ask --fulfil --actor bob",
    "signal w1 paid",
    "bulk cancel --all",
    "purge --older-than 0s",
    "import runs.gz",
    "register other.yaml",
    "template put template2.json",
    f"template delete {TEMPLATE['template_id']}",
    "schedule add s2 quotes --every 1h",
    "schedule pause s1",
    "schedule resume s3",
    "schedule run-now s1",
    "schedule backfill s1 --from 2024-01-01T00:00:00Z --to 2024-01-01T02:00:00Z",
    "schedule remove s1",
    "trigger add t2 quotes --hook --credential shop",
    "trigger pause t1",
    "trigger retry t3",
    "trigger remove t1",
    "alias set prod quotes@1",
    "alias rollback prod",
    "alias remove prod",
    "webhook create http://127.0.0.1:1/ --kind *",
    "webhook change <webhook> --name other",
    "webhook rotate <webhook>",
    "webhook redeliver <webhook>",
    "webhook delete <webhook>",
    "token create --scope read --name y",
    "token revoke <token>",
    "credential add till --type secret --value-stdin",
    "credential rotate shop --value-stdin",
    "credential remove shop",
    "credential rekey --new-key-file new.key",
    "store compact",
)


def lines(here: Here) -> list[tuple[str, str, str, str]]:
    """Newest first, and each only once."""
    store = SqliteStore(here.folder / "anabranch.db", read_only=True)
    try:
        found = store.audit(AuditFilter(limit=1000))
    finally:
        store.close()
    assert {line.address for line in found} <= {"command line"}
    return [(line.actor, line.action, line.subject, line.outcome) for line in found]


def test_whatever_can_be_said_to_a_run_has_a_name() -> None:
    """What people say, that is: a late result comes from a job, a place from the engine."""
    assert {*ACTIONS, s.JobLate, s.Admit} == set(Sayable.__args__)


def test_every_verb_that_changes_something_leaves_a_line(here: Here) -> None:
    for name, text in (("gate.yaml", GATE), ("admit.yaml", ADMIT), ("hello.yaml", HELLO)):
        here.write(name, text)
    here.run("run", "gate.yaml", "--run-id", "g1")
    here.run("run", "admit.yaml", "--run-id", "a1")
    here.run("decide", "g1", "ask", "--fulfil", "--actor", "eve")
    here.ok("decide", "g1", "ask", "--fulfil", "--actor", "bob")
    here.ok("pause", "a1")
    here.ok("patch", "a1", "go=yes")
    here.ok("bulk", "cancel", "--prefix", "a", "--actor", "kim")
    here.ok("token", "create", "--scope", "read", "--name", "x")
    here.ok("purge", "--older-than", "0s")
    found = [(actor, action, outcome) for actor, action, _, outcome in lines(here)]
    assert found == [
        ("ann", "runs.purge", "done"),
        ("ann", "runs.purge", "begun"),
        ("ann", "tokens.create", "done"),
        ("kim", "bulk.cancel", "done"),
        ("kim", "bulk.cancel", "begun"),
        ("ann", "runs.patch", "done"),
        ("ann", "runs.pause", "done"),
        ("bob", "runs.gates.decide", "done"),
        ("eve", "runs.gates.decide", "refused: not_allowed"),
        ("ann", "runs.create", "done"),
        ("ann", "runs.create", "done"),
    ]
    assert [subject for _, action, subject, _ in lines(here) if action == "runs.pause"] == ["a1"]


def test_looking_leaves_no_line(here: Here) -> None:
    here.write("hello.yaml", HELLO)
    here.ok("run", "hello.yaml", "--run-id", "h1")
    before = lines(here)
    for verb in (["runs"], ["show", "h1"], ["events", "h1"], ["explain", "h1"], ["graph", "h1"]):
        here.ok(*verb)
    here.run("bulk", "cancel", "--all", "--dry-run")
    assert [line for line in lines(here) if line not in before] == [
        ("ann", "bulk.cancel.dry_run", lines(here)[0][2], "done")
    ]


# -- one commit ------------------------------------------------------------------------------

QUOTES = HELLO.replace("name: hello", "name: quotes, path: quotes")
FILES = {
    "hello.yaml": HELLO,
    "gate.yaml": GATE,
    "admit.yaml": ADMIT,
    "fails.yaml": FAILS,
    "waits.yaml": WAITS,
    "quotes.yaml": QUOTES,
    "other.yaml": QUOTES.replace("path: quotes", "path: other"),
    "template.json": json.dumps(TEMPLATE),
    "template2.json": json.dumps({**TEMPLATE, "label": "Another label"}),
    "new.key": "n" * 40,
}
BEFORE = (
    "run hello.yaml --run-id h1",
    "export h1 --file runs.gz",
    "run gate.yaml --run-id g1",
    "run admit.yaml --run-id a1",
    "run admit.yaml --run-id p1",
    "pause p1",
    "run fails.yaml --run-id f1",
    "run waits.yaml --run-id w1",
    "template put template.json",
    "schedule add s1 quotes --every 1h",
    "schedule add s3 quotes --every 1h --paused",
    "credential add shop --type secret --value-stdin",
    "trigger add t1 quotes --hook --credential shop",
    "trigger add t3 quotes --after hello",
)


@pytest.fixture
def full(here: Here, monkeypatch: pytest.MonkeyPatch) -> tuple[Here, dict[str, str]]:
    """A store with something of everything; and the names that it gave out."""
    monkeypatch.setenv("ANABRANCH_WEBHOOK_ADDRESSES", "any")
    for name, text in FILES.items():
        here.write(name, text)
    here.ok("register", "quotes.yaml")
    here.ok("alias", "set", "prod", "quotes@1")
    here.write("quotes.yaml", QUOTES.replace("hello {{", "hi {{"))
    here.ok("register", "quotes.yaml")
    here.ok("alias", "set", "prod", "quotes@2")
    for line in BEFORE:
        here.run(*line.split(), stdin="a secret")
    hook = here.ok("webhook", "create", "http://127.0.0.1:1/", "--kind", "*", "--json").json
    token = here.ok("token", "create", "--scope", "read", "--name", "x", "--json").json
    return here, {"<webhook>": hook["id"], "<token>": token["id"]}


def refuse_lines(here: Here) -> None:
    with closing(sqlite3.connect(here.store)) as db, db:
        db.execute(
            f"CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, '{SAYS}'); END"
        )


def content(here: Here) -> list[str]:
    with closing(sqlite3.connect(here.store)) as db:
        return list(db.iterdump())


def test_a_verb_whose_line_cannot_be_written_says_so_and_changes_nothing(
    full: tuple[Here, dict[str, str]],
) -> None:
    here, names = full
    refuse_lines(here)
    before, wrong = content(here), {}
    for verb in VERBS:
        words = [names.get(word, word) for word in verb.split()]
        done = here.run(*words, stdin="another secret")
        if done.code == 0 or SAYS not in done.err or content(here) != before:
            wrong[verb] = done
            before = content(here)
    assert not wrong


def test_a_store_is_copied_and_migrated_in_one_commit_with_the_line(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.ok("run", here.write("hello.yaml", HELLO))
    refuse_lines(here)
    monkeypatch.setattr(file, "MIGRATIONS", [*file.MIGRATIONS, "CREATE TABLE extra (a);\n"])
    before = content(here)
    done = here.run("store", "migrate")
    assert (done.code, SAYS in done.err, content(here) == before) == (2, True, True)
    with closing(sqlite3.connect(here.store)) as db, db:
        db.execute("DROP TRIGGER full")
    here.ok("store", "migrate")
    assert lines(here)[0][1:] == ("store.migrate", "", "done")

    def refuse(*_given: object) -> None:
        raise StoreError(SAYS)

    monkeypatch.setattr(SqliteTarget, "put_audit", refuse)
    assert SAYS in here.run("store", "copy", here.store, "copy.db").err
    assert "unfinished copy" in here.run("runs", "--store", "copy.db").err


def test_a_restore_whose_line_cannot_be_written_says_what_happened(here: Here) -> None:
    """The one verb that comes first: a backup may be older than the table of the trail."""
    here.ok("run", here.write("hello.yaml", HELLO))
    here.ok("store", "backup", "backup.db")
    with closing(sqlite3.connect(here.folder / "backup.db")) as db, db:
        db.execute(
            f"CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, '{SAYS}'); END"
        )
    done = here.run("store", "restore", "backup.db")
    assert (done.code, SAYS in done.err) == (2, True)
    assert "is restored from backup.db" in done.err
    assert "before-restore" in done.err


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.db")
    yield made
    made.close()


def test_a_change_reads_what_it_wrote_and_goes_when_its_line_does_not_come(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = NamedRecord(family="alias", name="prod", body=b"{}")
    with AuditLine(store, "ann", "aliases.put", "prod").commit():
        assert store.put_record(record)
        assert store.record("alias", "prod") is not None
    assert [line.outcome for line in store.audit(AuditFilter())] == ["done"]

    def refuse(_entries: object) -> None:
        raise StoreError(SAYS)

    monkeypatch.setattr(store, "add_audit", refuse)
    with (
        refused(
            StoreError, f"nothing was changed, because the audit trail cannot be written: {SAYS}"
        ),
        AuditLine(store, "ann", "aliases.delete", "prod").commit(),
    ):
        assert store.drop_record("alias", "prod", seen=1)
        assert store.record("alias", "prod") is None
    assert store.record("alias", "prod") is not None
