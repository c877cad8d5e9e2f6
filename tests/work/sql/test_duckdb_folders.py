"""What DuckDB is handed of the allowed folders, and what it may set."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.work.sql import globs, whole_folders

from ..test_files_allowed import CANARY, make_backup, playbook, results, settings_of

pytest.importorskip("duckdb")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one that is allowed. It has the store in it, and `data` without anything of an engine;
    `out` lies beside it."""
    inside, out = tmp_path / "in", tmp_path / "out"
    for place in (inside / "data" / "deep", out):
        place.mkdir(parents=True)
    monkeypatch.chdir(inside)
    (inside / "runs.db.key").write_text(CANARY * 4)
    for place in (inside, inside / "data", inside / "data" / "deep"):
        (place / "some.csv").write_text("a\n1\n")
    (out / "secret.csv").write_text(f"a\n{CANARY}\n")
    return inside


def ended(folder: Path, queries: list[str], **more: Any) -> list[tuple[str, str]]:
    tools = [{"kind": "duckdb", "query": query, **more} for query in queries]
    return asyncio.run(results(settings_of(folder), [playbook(tool) for tool in tools]))


def all_complete(folder: Path, *queries: str) -> None:
    found = zip(queries, ended(folder, list(queries)), strict=True)
    assert [one for one in found if one[1][0] != "completed"] == []


def all_fail(folder: Path, *queries: str, saying: str = "files_allowed") -> None:
    for query, (status, said) in zip(queries, ended(folder, list(queries)), strict=True):
        assert status == "failed", query
        assert saying in said, (query, said)
        assert CANARY not in said, query


def test_a_link_that_a_statement_names_leads_nowhere_else(folder: Path) -> None:
    for place in (folder, folder / "data"):
        (place / "link.csv").symlink_to(folder.parent / "out" / "secret.csv")
        (place / "new.csv").symlink_to(folder.parent / "out" / "new.csv")
        (place / "own.csv").symlink_to(folder / "runs.db.key")
        (place / "folder").symlink_to(folder.parent / "out")
    (folder / "fine.csv").symlink_to("data/some.csv")
    names = ("link.csv", "data/link.csv", "folder/secret.csv", "data/folder/secret.csv")
    written = (*names, "new.csv", "data/new.csv", "data/folder/new.csv")
    all_fail(
        folder,
        *(f"FROM read_csv('{name}')" for name in (*names, "l*k.csv", "data/l*k.csv")),
        *(f"FROM read_csv('file://{folder}/{name}')" for name in names),
        *(f"COPY (SELECT 1) TO '{name}'" for name in written),
        *(f"COPY (SELECT 1) TO '{name}' (USE_TMP_FILE false)" for name in written),
        *(f"ATTACH '{name}' AS x" for name in written),
    )
    all_fail(folder, "FROM read_text('own.csv')", saying="store of this engine")
    assert os.listdir("../out") == ["secret.csv"]
    assert CANARY in Path("../out/secret.csv").read_text()
    all_complete(folder, "FROM read_csv('fine.csv')", "FROM read_csv('data/deep/some.csv')")


def test_what_stands_behind_a_link_leads_nowhere_else(folder: Path) -> None:
    """DuckDB counts `..` as it is written, and the system from where the link leads."""
    Path("data/deep/er").mkdir()
    Path("data/deep/er/up").symlink_to(folder / "data")
    Path("data/level").symlink_to(folder / "data" / "deep")
    Path("data/deep/file.csv").symlink_to(folder / "data" / "some.csv")
    out = "/../../out/secret.csv"
    all_fail(
        folder,
        f"FROM read_csv('data/deep/er/up' || '{out}')",
        f"FROM read_csv('data/deep/er/up{out}')",
        "COPY (SELECT 1) TO ('data/deep/er/up' || '/../../out/new.csv')",
        f"FROM read_csv('data/level' || '/..{out}')",
        f"FROM read_csv('data/deep/file.csv' || '/..{out}')",
    )
    assert os.listdir("../out") == ["secret.csv"]
    os.remove("data/deep/er/up")
    all_complete(folder, "FROM read_csv('data/lev' || 'el/some.csv')")


def test_a_link_beside_a_database_leads_nowhere_else(folder: Path) -> None:
    Path("data/x.duckdb.wal").symlink_to(folder.parent / "out" / "new")
    [(status, said)] = ended(folder, ["CREATE TABLE t AS SELECT 1"], database="data/x.duckdb")
    assert (status, "files_allowed" in said) == ("failed", True)
    assert os.listdir("../out") == ["secret.csv"]


def private(folder: Path) -> Iterator[str]:
    """Files deep in the folder that no definition may open."""
    make_backup(folder)
    for place in ("one", "two", "three", "four", "five"):
        Path("data", place).mkdir()
        Path("data", place, "some.csv").write_text("a\n1\n")
    for name in ("one/node.key", "two/anabranch.toml", "five/.env"):
        Path("data", name).write_text(CANARY)
        yield f"data/{name}"
    os.rename("backup.bin", "data/three/backup.bin")
    yield "data/three/backup.bin"
    os.link("runs.db.key", "data/four/plain.csv")
    yield "data/four/plain.csv"


def test_what_is_private_in_a_sub_folder_is_neither_read_nor_written(folder: Path) -> None:
    names = list(private(folder))
    before = {name: Path(name).read_bytes() for name in names}
    put_together = [f"'{name[:8]}' || '{name[8:]}'" for name in names]
    read = [f"FROM read_blob({name})" for name in put_together]
    written = [f"COPY (SELECT 1) TO ({name}) (USE_TMP_FILE false)" for name in put_together]
    attached = [f"ATTACH {name} AS x" for name in put_together]
    all_fail(folder, *read, *written, *attached, saying=f"{folder}/data/")  # it says why
    all_fail(folder, *(f"FROM read_blob('{name}')" for name in names), saying="")
    all_fail(folder, *(f"COPY (SELECT 1) TO '{name}'" for name in names), saying="")
    assert {name: Path(name).read_bytes() for name in names} == before
    all_complete(
        folder,
        "FROM read_csv('data/de' || 'ep/some.csv')",  # nothing of the kind is in it
        "COPY (SELECT 1) TO ('data/de' || 'ep/new.csv')",
        "FROM read_csv('data/one/some.csv')",  # named
        "FROM read_csv('data/*/some.csv')",
        "COPY (SELECT 1) TO 'data/one/new.csv'",
        "COPY (SELECT 2) TO 'data/one/new.csv'",
        "ATTACH 'data/one/x.duckdb' AS x; CREATE TABLE x.t AS SELECT 1",
    )


def test_a_pattern_is_not_looked_for_outside_nor_for_ever(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("../out/deep").mkdir()
    Path("up").symlink_to("../out")
    seen = set[str]()
    scan = os.scandir

    def scan_and_tell(path: str) -> Any:
        seen.add(os.path.realpath(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scan_and_tell)
    out = folder.parent / "out"
    asked = ("../out/**/no*", f"{out}/**/no*", "up/**/no*", "*/../../out/**/no*", "**/../../*/no*")
    all_fail(folder, *(f"FROM read_csv('{pattern}')" for pattern in asked), saying="")
    assert {place for place in seen if place.startswith(str(out))} == set()
    for number in range(30):
        Path(f"{number}.txt").touch()
        Path(f"data/{number}.csv").write_text("a\n1\n")
    monkeypatch.setattr(globs, "ENTRIES_MAX", 20)
    all_fail(folder, "FROM read_csv('**/**/**/no*')", saying="a folder of its own")
    all_complete(folder, "FROM read_csv('data/*.csv')")  # handed whole
    monkeypatch.setattr(whole_folders, "ENTRIES_MAX", 20)
    all_fail(folder, "FROM read_csv('da' || 'ta/some.csv')", saying="a folder of its own")
    all_complete(folder, "FROM read_csv('data/some.csv')")


def test_no_statement_logs_into_a_file_or_spills_into_the_current_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("../out/.tmp").mkdir()
    monkeypatch.chdir("../out")
    logs = (
        f"CALL enable_logging(storage='file', storage_path='{folder}/data/log')",
        "CALL enable_logging(storage='file', storage_path='log')",
        "CALL enable_logging('QueryLog')",
        f"SET log_query_path='{folder}/data/log'",
        f"SET profiling_output='{folder}/data/log'",
        f"SET secret_directory='{folder}/data/log'",
        "SET temp_directory='.tmp'",
        "SET lock_configuration=false",
        "SET allowed_configs=[]",
        "RESET allowed_configs",
    )
    all_fail(folder, *(f"{one}; SELECT 1" for one in logs), saying="locked")
    all_fail(folder, "COPY (SELECT 1) TO '.tmp/x.csv'", "COPY (SELECT 1) TO ('.tm' || 'p/x.csv')")
    assert os.listdir(".tmp") == []
    assert not (folder / "data" / "log").exists()
    all_complete(
        folder,
        "SET threads=1; SET memory_limit='1GB'; SET TimeZone='UTC'; SET search_path='main'",
        "SET memory_limit='60MB'; CREATE TABLE t AS SELECT range a, hash(range) b FROM "
        "range(6000000)",  # which spills
    )
    assert os.listdir(".tmp") == []
