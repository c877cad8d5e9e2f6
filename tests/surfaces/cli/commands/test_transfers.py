"""`export` and `import` at the command line."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from ..support import GATE, HELLO, Here


def ids(here: Here, *words: str) -> set[str]:
    return {row["run"] for row in here.ok("runs", "--json", *words).json}


def test_runs_go_from_one_store_to_another(here: Here) -> None:
    flow = here.write("hello.yaml", HELLO)
    for who in ("ann", "bob"):
        here.ok("run", flow, "--input", f"who={who}")
    one, two = ids(here)
    done = here.ok("export", one, two, one, "--file", "runs.gz", "--json").json
    assert (done["file"], done["runs"], done["definitions"]) == ("runs.gz", 2, 1)
    assert (here.folder / "runs.gz").stat().st_mode & 0o777 == 0o600
    other = ("--store", "other.db")
    assert here.ok("import", "runs.gz", "--dry-run", "--json", *other).json["runs"] == 2
    assert ids(here, *other) == set()
    assert here.ok("import", "runs.gz", *other).out == "imported 2 runs and 0 payloads\n"
    assert ids(here, *other) == {one, two}
    again = here.ok("import", "runs.gz", *other).out
    assert again == "imported 0 runs and 0 payloads; 2 were there already\n"
    for run in (one, two):
        assert here.ok("show", run, "--json", *other).json == here.ok("show", run, "--json").json
        assert here.ok("events", run, *other).out == here.ok("events", run).out
    here.ok("store", "check", *other)


def test_last_names_the_newest_run_and_a_file_that_is_there_is_kept(here: Here) -> None:
    here.ok("run", here.write("hello.yaml", HELLO))
    here.ok("export", "last", "--file", "runs.gz")
    before = (here.folder / "runs.gz").read_bytes()
    done = here.run("export", "last", "--file", "runs.gz")
    assert done.code == 2
    assert "runs.gz is there already: nothing was written" in done.err
    assert (here.folder / "runs.gz").read_bytes() == before
    assert not list(here.folder.glob("*.part"))


def test_a_run_that_waits_is_refused_and_no_file_is_left(here: Here) -> None:
    here.run("run", here.write("gate.yaml", GATE))
    done = here.run("export", "last", "--file", "runs.gz")
    assert done.code == 2
    assert "only runs that have ended are exported" in done.err
    assert sorted(path.name for path in here.folder.glob("runs*")) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("export", "nobody", "--file", "x.gz"), "nobody"),
        (("export", "last", "--json"), "name a file with --file"),
        (("export",), "the following arguments are required: RUN"),
        (("export", "last", "--file", "no/such/x.gz"), "no/such/x.gz"),
        (("import", "gone.gz"), "there is no file gone.gz"),
        (("import", "hello.yaml"), "hello.yaml: line 0: cannot be unpacked"),
        (("import", "."), "Is a directory"),
        (("export", "last", "--server", "http://x"), "works on a store itself"),
        (("import", "x.gz", "--server", "http://x"), "works on a store itself"),
    ],
)
def test_bad_usage_is_told_and_changes_nothing(
    here: Here, words: tuple[str, ...], told: str
) -> None:
    here.ok("run", here.write("hello.yaml", HELLO))
    before = ids(here)
    done = here.run(*words)
    assert done.code == 2, done
    assert told in done.err
    assert ids(here) == before
    assert not list(here.folder.glob("*.gz*"))


def test_an_import_is_in_the_audit_trail(here: Here) -> None:
    here.ok("run", here.write("hello.yaml", HELLO))
    here.ok("export", "last", "--file", "runs.gz")
    here.ok("import", "runs.gz", "--actor", "kim")
    with closing(sqlite3.connect(here.store)) as db:
        rows = db.execute("SELECT actor, subject, outcome FROM audit WHERE action = 'runs.import'")
        assert rows.fetchall() == [("kim", "runs.gz", "begun"), ("kim", "runs.gz", "done")]
