"""Verbs at a store of this machine leave a line in its audit trail, as over HTTP."""

from __future__ import annotations

import logging

import pytest

from anabranch.errors import StoreError
from anabranch.kernel import stimuli as s
from anabranch.runtime.messages.codec import Sayable
from anabranch.store.access_ports import AuditFilter
from anabranch.store.memory.store import MemoryStore
from anabranch.store.sqlite.store import SqliteStore
from anabranch.surfaces.cli.backend.local.audit import SAID, note

from ..support import ADMIT, GATE, HELLO, Here


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
    assert {*SAID, s.JobLate, s.Admit} == set(Sayable.__args__)


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
        ("ann", "tokens.create", "done"),
        ("kim", "bulk.cancel", "done"),
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


def test_a_trail_that_cannot_be_written_undoes_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()

    def full(_entries: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(store, "add_audit", full)
    with caplog.at_level(logging.ERROR):
        note(store, "ann", "runs.pause", "r1")
    assert "the disk is full" in caplog.text
