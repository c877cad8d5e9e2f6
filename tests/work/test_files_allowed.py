"""A definition opens files of the folders that are allowed, by whatever kind of work and whatever
name, and never what belongs to the system or to an engine."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from anabranch import Engine
from anabranch.settings import Settings
from anabranch.work.file_policy import FileNotAllowed, FilePolicy

CANARY = "canary-4711"
NAMES = (
    "../out/secret.csv",  # beside the folder
    "/proc/self/environ",
    "runs.db.key",
    "hard.csv",  # the key by another name
    "link.csv",  # to a file outside
    "folder/secret.csv",  # through a folder outside
    "anabranch.toml",
    "backup.bin",  # a copy of a store, by another name
    ".ssh/id",  # hidden, as in the home of the engine's user
)
#: None of them reads or writes more than the file that it names.
KINDS: dict[str, dict[str, Any]] = {
    "artifact get": {"kind": "artifact", "action": "get", "uri": "NAME"},
    "artifact by address": {"kind": "artifact", "action": "get", "uri": "file://FOLDER/NAME"},
    "python script": {"kind": "python", "script": "NAME"},
    "script": {"kind": "script", "script": {"uri": "NAME", "source": {"type": "file"}}},
    "sql script": {"kind": "sqlite", "database": ":memory:", "script": "NAME"},
    "upload": {"kind": "gcs", "source": "NAME", "destination": "gs://bucket/key"},
    "secret": {"kind": "secrets", "provider": "file", "path": "NAME", "name": "s"},
    "child": {"kind": "playbook", "path": "NAME"},
    "sqlite": {"kind": "sqlite", "database": "NAME", "query": "SELECT * FROM sqlite_schema"},
    "sqlite by address": {
        "kind": "sqlite",
        "database": "file://localhostFOLDER/NAME?mode=ro#x",
        "query": "SELECT * FROM sqlite_schema",
    },
    "sqlite attached": {
        "kind": "sqlite",
        "database": ":memory:",
        "commands": "ATTACH 'NAME' AS other; SELECT * FROM other.sqlite_schema",
    },
    "transfer": {
        "kind": "transfer",
        "source": {"tool": "sqlite", "database": "NAME", "query": "SELECT 1 AS a"},
        "target": {"tool": "sqlite", "database": "other.db", "table": "t"},
    },
}
LOOPS = ("csv", "jsonl")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one that is allowed, with the store in it; `out` beside it is not."""
    inside, out = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    out.mkdir()
    monkeypatch.chdir(inside)
    monkeypatch.setenv("CANARY", CANARY)
    (out / "secret.csv").write_text(f"a\n{CANARY}\n")
    (inside / "runs.db.key").write_text(CANARY * 4)
    os.link("runs.db.key", "hard.csv")
    (inside / "anabranch.toml").write_text(f"# {CANARY}\n")
    (inside / "link.csv").symlink_to("../out/secret.csv")
    (inside / "folder").symlink_to("../out")
    (inside / ".ssh").mkdir()
    (inside / ".ssh" / "id").write_text(CANARY)
    return inside


def playbook(tool: dict[str, Any], **more: Any) -> dict[str, Any]:
    step = {"step": "one", "tool": tool, **more.pop("step", {})}
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "reads"}}
    return {**head, **more, "workflow": [step]}


def naming(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: naming(each, name) for key, each in value.items()}
    if not isinstance(value, str):
        return value
    if "FOLDER/NAME" in value:
        return value.replace("FOLDER/NAME", os.path.abspath(name))
    return value.replace("NAME", name)


def settings_of(folder: Path, **more: Any) -> Settings:
    return Settings(store=str(folder / "runs.db"), files_allowed=str(folder), **more)


async def results(
    settings: Settings, definitions: list[Any], *, at_once: bool = False
) -> list[tuple[str, str]]:
    """How each ended, and everything that it says."""
    async with Engine(settings=settings) as engine:

        async def end(definition: Any) -> tuple[str, str]:
            result = await engine.wait(await engine.start(definition))
            return result.status, f"{result.problem} {result.steps}"

        if at_once:
            return list(await asyncio.gather(*map(end, definitions)))
        return [await end(definition) for definition in definitions]


def make_backup(folder: Path) -> None:
    """A store that no process has open, under a name that says nothing."""

    async def scenario() -> None:
        async with Engine(folder / "old.db"):
            pass

    asyncio.run(scenario())
    os.rename("old.db", "backup.bin")


def test_no_kind_of_work_opens_what_is_not_allowed(folder: Path) -> None:
    make_backup(folder)
    asked = {
        **{(k, name): playbook(naming(tool, name)) for k, tool in KINDS.items() for name in NAMES},
        **{
            (loop, name): playbook(
                {"kind": "noop"}, step={"loop": {"in": {loop: name}, "iterator": "row"}}
            )
            for loop in LOOPS
            for name in NAMES
        },
        **{
            ("keychain", name): playbook(
                {"kind": "noop", "result": "{{ keychain.own }}"},
                keychain=[{"name": "own", "kind": "file", "path": name}],
            )
            for name in NAMES
        },
        ("listing", "folder"): playbook(
            {"kind": "noop"}, step={"loop": {"in": {"listing": "folder"}, "iterator": "row"}}
        ),
    }
    ended = asyncio.run(results(settings_of(folder), list(asked.values()), at_once=True))
    words = ("files_allowed", "no setting allows it", "the store of this engine", "or a copy of")
    for what, (status, said) in zip(asked, ended, strict=True):
        assert status == "failed", what
        assert any(word in said for word in words), (what, said)
        assert CANARY not in said, what


def test_a_listing_has_the_names_of_all_files_and_follows_no_link_out(folder: Path) -> None:
    def listing(pattern: str) -> dict[str, Any]:
        loop = {"in": {"listing": ".", "pattern": pattern}, "iterator": "row"}
        return playbook({"kind": "noop", "result": "{{ iter.row.name }}"}, step={"loop": loop})

    settings = settings_of(folder)
    ended = asyncio.run(results(settings, [listing("[ar]*"), listing("*.csv")]))
    assert [status for status, _ in ended] == ["completed", "failed"]
    assert "link.csv leads to" in ended[1][1]


def test_nothing_is_written_outside_nor_over_files_of_the_engine(folder: Path) -> None:
    (folder / "flows").mkdir()
    (folder / "data.csv").write_text("a\n1\n")
    put = {"kind": "artifact", "action": "put", "data": "new: 1", "uri": "NAME"}
    into = {"kind": "sqlite", "database": "NAME", "query": "CREATE TABLE t (a)"}
    vacuum = {"kind": "sqlite", "database": ":memory:", "query": "VACUUM INTO 'NAME'"}
    names: tuple[str, ...]
    names = ("../out/new", "folder/new", "runs.db.new", "flows/new.yaml", "anabranch.toml")
    names += (".ssh/authorized_keys", ".profile", "flows/.git/config")
    asked = [(tool["kind"], name) for tool in (put, into, vacuum) for name in names]
    definitions = [playbook(naming(tool, name)) for tool in (put, into, vacuum) for name in names]
    settings = settings_of(folder, catalog=str(folder / "flows"))
    before = sorted(folder.parent.rglob("*"))
    ended = asyncio.run(results(settings, [*definitions, playbook(naming(put, "deep/er/new"))]))
    for what, (status, said) in zip(asked, ended, strict=False):
        assert status == "failed", (what, said)
    made = set(folder.parent.rglob("*")) - set(before) - set(folder.glob("runs.db*"))
    assert made == {folder / "deep", folder / "deep/er", folder / "deep/er/new"}
    assert CANARY in (folder / "anabranch.toml").read_text()


def test_no_database_becomes_a_definition_of_the_catalog(folder: Path) -> None:
    """Whoever opens a database makes it, and DuckDB lets statements copy anything onto it."""
    pytest.importorskip("duckdb")
    (folder / "flows" / "sub").mkdir(parents=True)
    with sqlite3.connect("flows/read.json") as database:
        database.execute("CREATE TABLE t AS SELECT 1 AS a")
    database.close()
    read = {
        "kind": "sqlite",
        "database": "file:flows/read.json?mode=ro",
        "query": "SELECT a FROM t",
    }
    names = ("flows/load.yaml", "flows/sub/load.YML", "flows/load.json", "flows/read.json")
    source = {"tool": "sqlite", "database": ":memory:", "query": "SELECT 1 AS a"}
    tools: list[dict[str, Any]] = [
        {"kind": "sqlite", "database": "NAME", "query": "SELECT 1"},
        {"kind": "sqlite", "database": "file:NAME", "query": "CREATE TABLE t (a)"},
        {"kind": "sqlite", "database": "file:NAME?mode=rwc&immutable=1", "query": "SELECT 1"},
        {"kind": "sqlite", "database": ":memory:", "query": "ATTACH 'NAME' AS x"},
        {
            "kind": "sqlite",
            "database": ":memory:",
            "query": "ATTACH :f AS x",
            "params": {"f": "NAME"},
        },
        {
            "kind": "transfer",
            "source": source,
            "target": {"tool": "sqlite", "database": "NAME", "table": "t"},
        },
        {
            "kind": "transfer",
            "source": source,
            "target": {"tool": "duckdb", "database": "NAME", "table": "t"},
        },
        {"kind": "duckdb", "database": "NAME", "query": "SELECT 1"},
        {"kind": "duckdb", "database": "NAME", "query": "SELECT 1", "read_only": True},
        {"kind": "duckdb", "query": "ATTACH 'NAME' AS x; CREATE TABLE x.t AS SELECT 1"},
    ]
    asked = [(tool, name) for tool in tools for name in names]
    definitions = [playbook(naming(tool, name)) for tool, name in asked]
    settings = settings_of(folder, catalog=str(folder / "flows"))
    before = {place: place.read_bytes() for place in folder.rglob("flows/**/*.*")}
    *ended, read_only = asyncio.run(results(settings, [*definitions, playbook(read)]))
    words = ("would be a definition of the catalog", "files_allowed")  # the latter are DuckDB's
    for what, (status, said) in zip(asked, ended, strict=True):
        assert status == "failed", what
        assert any(word in said for word in words), (what, said)
    assert read_only[0] == "completed", read_only
    assert {place: place.read_bytes() for place in folder.rglob("flows/**/*.*")} == before


def test_duckdb_is_held_to_the_folders_whatever_names_a_statement_puts_together(
    folder: Path,
) -> None:
    pytest.importorskip("duckdb")
    (folder / "data").mkdir()
    (folder / "data" / "some.csv").write_text("a\n1\n")
    (folder / "beside.csv").write_text("a\n1\n")

    def asking(query: str, **more: Any) -> dict[str, Any]:
        return playbook({"kind": "duckdb", "query": query, **more})

    allowed = [
        asking("FROM read_csv('data/' || 'some.csv')"),
        asking("FROM read_csv('beside.csv')"),  # in the folder of the store, and named
        asking("COPY (SELECT 1) TO 'data/out.txt'"),
        asking("CREATE TABLE t AS FROM read_csv('data/*.csv')", database="some.duckdb"),
        asking("FROM t", database="some.duckdb"),
    ]
    refused = [
        asking("FROM read_text('runs.' || 'db.key')"),
        asking("FROM read_blob('runs.' || 'db')"),
        asking("FROM read_text('/proc/self/' || 'environ')"),
        asking("FROM read_csv('../out/' || 'secret.csv')"),
        asking("FROM read_csv('link' || '.csv')"),
        asking("FROM read_text('anabranch' || '.toml')"),
        asking("COPY (SELECT 1) TO 'anabranch.toml'"),
        asking("COPY (SELECT 1) TO '../out/new.csv'"),
        asking("ATTACH '../out/other.duckdb' AS other"),
        asking("SET enable_external_access = true"),
        asking("FROM t", database="../out/other.duckdb"),
    ]
    ended = asyncio.run(results(settings_of(folder), [*allowed, *refused]))
    assert [said for status, said in ended[: len(allowed)] if status != "completed"] == []
    assert {status for status, _ in ended[len(allowed) :]} == {"failed"}
    assert "files_allowed" in ended[len(allowed)][1]
    assert CANARY not in str(ended)
    assert os.listdir("../out") == ["secret.csv"]


def test_files_that_a_postgres_address_names_are_looked_at_before_anything_connects(
    folder: Path,
) -> None:
    pytest.importorskip("psycopg")
    dsn = "host=127.0.0.1 port=1 dbname=d passfile=../out/secret.csv"
    tool = {"kind": "postgres", "dsn": dsn, "query": "SELECT 1"}
    [(_, said)] = asyncio.run(results(settings_of(folder), [playbook(tool)]))
    assert "files_allowed" in said


def test_a_postgres_address_names_no_file_that_is_written_nor_one_that_names_others(
    folder: Path,
) -> None:
    pytest.importorskip("psycopg")
    for part in ("sslkeylogfile=keys.txt", f"servicefile={folder}/mine.conf service=mine"):
        dsn = f"host=127.0.0.1 port=1 dbname=d {part}"
        transfer = {
            "kind": "transfer",
            "source": {"tool": "postgres", "dsn": dsn, "query": "SELECT 1 AS a"},
            "target": {"tool": "sqlite", "database": "other.db", "table": "t"},
        }
        task = {"kind": "postgres", "dsn": dsn, "query": "SELECT 1"}
        asked = [playbook(task), playbook(transfer)]
        for _, said in asyncio.run(results(settings_of(folder), asked)):
            # A libpq that does not know the word refuses the address.
            assert "does not set" in said or "is not a PostgreSQL address" in said, (part, said)


def test_an_embedded_engine_reads_every_folder_and_still_nothing_of_its_own(folder: Path) -> None:
    settings = Settings(store=str(folder / "runs.db"))
    get = KINDS["artifact get"]
    names = ("../out/secret.csv", "runs.db.key", "/proc/self/environ", "anabranch.toml")
    ended = asyncio.run(results(settings, [playbook(naming(get, name)) for name in names]))
    assert [status for status, _ in ended] == ["completed", "failed", "failed", "failed"]


def test_what_is_hidden_is_allowed_where_it_is_listed(folder: Path) -> None:
    """And everywhere for an embedded engine, as before."""
    hidden = folder / ".ssh" / "id"
    FilePolicy().resolve(hidden)
    FilePolicy(roots=(str(folder), str(folder / ".ssh"))).resolve(hidden)
    FilePolicy(roots=(str(hidden),)).resolve(hidden)
    FilePolicy(roots=(str(folder),)).resolve(folder / "some.dot.csv")
    with pytest.raises(FileNotAllowed, match="is hidden"):
        FilePolicy(roots=(str(folder),)).resolve(hidden)


def test_a_link_that_appears_after_the_look_is_not_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "secret.csv").write_text("mine")
    policy = FilePolicy(roots=(str(folder),))
    assert os.read(policy.open_regular("sub/secret.csv"), 10) == b"mine"
    resolve = os.path.realpath

    def resolve_and_swap(path: str) -> str:
        real = resolve(path)
        if (folder / "sub").is_dir() and not (folder / "sub").is_symlink():
            os.rename("sub", "gone")
            os.symlink("../out", "sub")
        return real

    monkeypatch.setattr(os.path, "realpath", resolve_and_swap)
    with pytest.raises(OSError, match="Not a directory"):
        policy.open_regular("sub/secret.csv")
    with pytest.raises(FileNotAllowed):
        policy.write("sub/new", b"x")
    assert os.listdir("../out") == ["secret.csv"]
