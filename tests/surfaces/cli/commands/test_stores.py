"""`store backup|restore|check|compact`: the file of a store as a whole, at the terminal."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

import quick_starts
from anabranch.kernel.state import encode_state
from anabranch.runtime.live_run import load_state
from anabranch.store.access_ports import AuditFilter
from anabranch.store.ports import HeadFilter
from anabranch.store.sqlite.store import SqliteStore
from anabranch.surfaces.http.resources.workflows import EXAMPLE as TEMPLATE
from damage import DAMAGES, damage

from ..support import GATE, HEAD, HELLO, Here, Terminal, until

LARGE = f"""{HEAD}metadata: {{name: large}}
workflow:
  - step: make
    tool: {{kind: noop, result: "{{{{ 'x' * 300000 ~ workload.n }}}}"}}
workload: {{n: 0}}
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the store with the runs is kept that the first test has made, for all the others."""
    return tmp_path_factory.mktemp("stores") / "kept"


@pytest.fixture
def runs(here: Here, kept: Path) -> None:
    """A run that ended, two that wait, and one with a payload."""
    if not kept.exists():
        make_runs(here)
        shutil.copytree(here.folder, kept)
    else:
        shutil.copytree(kept, here.folder, dirs_exist_ok=True)


def make_runs(here: Here) -> None:
    for name, text in (("hello", HELLO), ("gate", GATE), ("large", LARGE)):
        here.write(f"{name}.yaml", text)
    here.ok("run", "hello.yaml", "--run-id", "done")
    here.ok("run", "large.yaml", "--run-id", "large")
    for name in ("bad", "good"):
        here.run("run", "gate.yaml", "--run-id", name)


def listed(here: Here) -> set[str]:
    return {row["run"] for row in here.ok("runs", "--json").json}


# -- backup and restore ----------------------------------------------------------------------


@pytest.mark.usefixtures("runs")
def test_a_backup_is_restored_and_says_what_that_means(here: Here) -> None:
    token = here.ok("token", "create", "--scope", "read", "--name", "kim", "--json").json["id"]
    made = here.ok("store", "backup", "copy.db", "--json").json
    assert made["runs"] == 4
    assert made["bytes"] == (here.folder / "copy.db").stat().st_size
    here.ok("token", "revoke", token)
    here.ok("run", "hello.yaml", "--run-id", "later")
    done = here.ok("store", "restore", "copy.db")
    assert listed(here) == {"done", "large", "bad", "good"}
    assert f"valid again, revoke them: {token}" in done.err
    assert "runs started after the backup are gone" in done.err
    (kept,) = here.folder.glob("anabranch.db.before-restore-*")
    assert str(kept) in done.out
    assert here.ok("store", "check", "--store", kept).out.count("sound") == 1
    assert here.ok("token", "list", "--json").json[0]["state"] == "active"
    with closing(SqliteStore(here.store, read_only=True)) as store:
        assert store.audit(AuditFilter(limit=1))[0].action == "store.restore"


@pytest.mark.usefixtures("runs")
def test_a_backup_refuses_to_overwrite_and_names_the_files_that_belong_to_it(here: Here) -> None:
    (here.folder / "copy.db").write_text("mine")
    refused = here.run("store", "backup", "copy.db", "--json")
    assert (refused.code, refused.json["problem"]["code"]) == (2, "file_exists")
    (here.folder / "anabranch.db.sent").write_bytes(b"")
    (here.folder / "anabranch.db.key").write_bytes(b"")
    done = here.ok("store", "backup", "copy.db", "--force")
    assert "anabranch.db.sent" in done.err
    assert "anabranch.db.key" in done.err


@pytest.mark.parametrize("action", ["backup", "restore", "check", "compact"])
def test_the_file_of_a_store_is_not_reached_through_a_server(
    action: str, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["store", action, *(["x.db"] if action in ("backup", "restore") else [])]
    refused = here.run(*words, "--server", "http://127.0.0.1:9")
    assert refused.code == 2
    assert "on the machine that has it" in refused.err
    monkeypatch.setenv("ANABRANCH_SERVER", "http://127.0.0.1:9")
    refused = here.run(*words)
    assert refused.code == 2
    assert "--store" in refused.err


# -- check -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("runs")
def test_a_sound_store_is_told_to_be_sound_also_while_an_engine_owns_it(here: Here) -> None:
    with closing(SqliteStore(here.store)) as store:
        store.acquire("an engine")
        report = here.ok("store", "check", "--json").json
    assert report["problems"] == report["notes"] == []
    assert (report["sound"], report["runs"], report["payloads"]) == (True, 4, 1)
    assert report["events"] > 10
    assert report["definitions"] == 3


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("how", DAMAGES)
def test_a_check_names_the_run_whose_rows_are_damaged(how: str, here: Here) -> None:
    damage(here.store, "bad", how)
    done = here.run("store", "check", "--json")
    assert done.code == 1
    report = done.json
    assert {problem["run"] for problem in report["problems"]} == {"bad"}
    assert report["runs"] == 4  # the others were looked at, too
    text = here.run("store", "check")
    assert text.code == 1
    assert "run bad: " in text.out


CHANGES = {
    "payload": "UPDATE payloads SET content = x'00'",
    "definition": "UPDATE definitions SET source = source || '# changed' WHERE name = 'hello'",
    "hold": "DELETE FROM payloads",
    "sealed": "INSERT INTO sealed VALUES ('nobody', 'k', x'00')",
    "log": "DELETE FROM heads WHERE run = 'done'",
    "head": "DELETE FROM definitions WHERE name = 'gate'",
    "snapshot": "INSERT INTO snapshots VALUES ('done', 1, x'7b7d')",
}


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("part", CHANGES)
def test_a_check_finds_what_was_changed_in_every_table(part: str, here: Here) -> None:
    with closing(sqlite3.connect(here.store)) as db, db:
        assert db.execute(CHANGES[part]).rowcount > 0
    report = here.run("store", "check", "--json").json
    assert part in {problem["part"] for problem in report["problems"]}


def test_a_check_knows_templates_from_definitions(here: Here) -> None:
    here.write("template.json", json.dumps(TEMPLATE))
    put = ("template", "put", "template.json")
    here.ok(*put)
    here.ok("template", "delete", str(TEMPLATE["template_id"]))
    here.ok(*put)
    assert here.ok("store", "check", "--json").json["problems"] == []
    with closing(sqlite3.connect(here.store)) as db, db:
        assert db.execute("UPDATE definitions SET source = source || ' '").rowcount > 0
    problems = here.run("store", "check", "--json").json["problems"]
    assert {problem["part"] for problem in problems} == {"definition"}


@pytest.mark.usefixtures("runs")
def test_a_snapshot_that_tells_another_story_than_the_log_is_found(here: Here) -> None:
    """It decodes, and nothing but the log says that it is wrong."""
    with closing(SqliteStore(here.store)) as store:
        state = load_state(*store.read_many(["bad"])["bad"], "bad")
    state.ctx |= {"approved": True}
    with closing(sqlite3.connect(here.store)) as db, db:
        db.execute("INSERT INTO snapshots VALUES ('bad', ?, ?)", (state.seq, encode_state(state)))
    (problem,) = here.run("store", "check", "--json").json["problems"]
    assert (problem["run"], problem["part"]) == ("bad", "snapshot")
    assert problem["message"].endswith("differs from the log in ctx")


@pytest.mark.usefixtures("runs")
def test_damaged_pages_are_problems_of_the_file(here: Here) -> None:
    with closing(sqlite3.connect(here.store)) as db:
        query = "SELECT rootpage FROM sqlite_schema WHERE name = 'heads_newest'"
        (page,) = db.execute(query).fetchone()
    with here.store.open("r+b") as file:
        file.seek((page - 1) * 4096 + 8)
        file.write(b"\xff" * 2000)
    done = here.run("store", "check", "--json")
    assert done.code == 1
    assert "file" in {problem["part"] for problem in done.json["problems"]}


@pytest.mark.usefixtures("runs")
def test_a_check_notes_a_store_that_others_may_read(here: Here) -> None:
    here.store.chmod(0o644)
    report = here.ok("store", "check", "--json").json
    assert "0644" in report["notes"][0]


def test_there_is_nothing_to_check_where_there_is_no_store(here: Here) -> None:
    assert here.run("store", "check").code == 2
    assert not here.store.exists()


# -- space -----------------------------------------------------------------------------------


def fill(here: Here) -> None:
    here.write("large.yaml", LARGE)
    for number in range(4):
        here.ok("run", "large.yaml", "--input", f"n={number}")


def forget_auto_vacuum(path: Path) -> None:
    """As an older version made it."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA auto_vacuum = NONE")
        db.execute("VACUUM")
        assert db.execute("PRAGMA auto_vacuum").fetchone() == (0,)


def test_a_purge_makes_the_file_shorter_and_says_by_how_much(here: Here) -> None:
    fill(here)
    before = here.store.stat().st_size
    would = here.ok("purge", "--older-than", "0s", "--dry-run", "--json").json
    assert would["space"]["given_back"] == 0
    gone = here.ok("purge", "--older-than", "0s", "--json").json
    assert gone["space"]["given_back"] > 1_200_000
    assert here.store.stat().st_size == before - gone["space"]["given_back"]
    assert gone["space"]["unused"] == 0


def test_a_purge_of_an_older_store_names_compact_which_needs_the_store_for_itself(
    here: Here,
) -> None:
    fill(here)
    forget_auto_vacuum(here.store)
    purged = here.ok("purge", "--older-than", "0s").out
    assert "anabranch store compact" in purged
    size = here.store.stat().st_size
    assert "anabranch store compact" in here.ok("store", "check").err
    with closing(SqliteStore(here.store)) as store:
        store.acquire("an engine")
        refused = here.run("store", "compact")
        assert (refused.code, "an engine" in refused.err) == (2, True)
    done = here.ok("store", "compact", "--json").json
    assert done["bytes_before"] == size
    assert here.store.stat().st_size == done["bytes_after"] < size - 1_200_000
    assert here.ok("store", "check", "--json").json["notes"] == []
    fill(here)
    again = here.ok("purge", "--older-than", "0s", "--json").json["space"]
    assert again["given_back"] > 1_200_000


# -- beside an engine ------------------------------------------------------------------------

BUSY = f"""
import asyncio
import anabranch

HELLO = {HELLO!r}

async def main():
    async with anabranch.Engine("anabranch.db") as engine:
        with open("acknowledged", "a") as acknowledged:
            for number in range(100_000):
                run = await engine.start(HELLO, run=f"r{{number}}")
                await engine.wait(run)
                print(run, file=acknowledged, flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
def test_backups_of_a_busy_engine_are_sound_and_hold_all_that_was_acknowledged(
    terminal: Terminal, here: Here
) -> None:
    terminal.write("busy.py", BUSY)
    words = [sys.executable, "busy.py"]
    busy = quick_starts.Popen[bytes](words, cwd=terminal.folder, env=terminal.environment())
    try:
        known: set[str] = set()
        for number in range(3):
            until(lambda: len(acknowledged(terminal)) > len(known) + 5)  # noqa: B023 - at once
            known = acknowledged(terminal)
            copy = terminal.folder / f"copy{number}.db"
            here.ok("store", "backup", copy, "--store", terminal.store)
            assert here.ok("store", "check", "--store", copy, "--json").json["sound"]
            assert known <= runs_in(copy)
        assert here.ok("store", "check", "--json").json["sound"]
        refused = here.run("store", "restore", "copy0.db")
        assert (refused.code, "in use" in refused.err) == (2, True)
    finally:
        busy.kill()
        busy.wait()
    assert here.ok("store", "check", "--json").json["sound"]
    assert acknowledged(terminal) <= runs_in(terminal.store)
    here.ok("store", "restore", "copy1.db")
    assert runs_in(terminal.store) == runs_in(terminal.folder / "copy1.db")


def acknowledged(terminal: Terminal) -> set[str]:
    file = terminal.folder / "acknowledged"
    return set(file.read_text().split("\n")[:-1]) if file.exists() else set()


def runs_in(path: Path) -> set[str]:
    with closing(SqliteStore(path, read_only=True)) as store:
        return {head.run for head in store.heads(HeadFilter(limit=1_000_000))}
