"""No task and no definition opens the store of the engine that runs it, by whatever name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from anabranch import Engine
from anabranch.errors import AnabranchError
from anabranch.settings import Settings

NAMES = {
    "the database": "own.db",
    "its log": "own.db-wal",
    "its shared memory": "own.db-shm",
    "its lock file": "own.db.lock",
    "a symbolic link": "soft.json",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "soft.json").symlink_to("own.db")
    return tmp_path


def playbook(tool: dict[str, Any], **more: Any) -> dict[str, Any]:
    step = {"step": "one", "tool": tool, **more.pop("step", {})}
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "reads"}}
    return {**head, **more, "workflow": [step]}


async def said(folder: Path, definition: Any) -> str:
    """What a run of it says went wrong."""
    (told,) = await said_of_all(folder, [definition])
    return told


async def said_of_all(folder: Path, definitions: list[Any]) -> list[str]:
    """The same of many, in one engine."""
    told = []
    async with Engine(folder / "own.db", settings=Settings()) as engine:
        for definition in definitions:
            result = await engine.wait(await engine.start(definition))
            assert result.status != "completed", result
            told.append(str(result.problem) + str(result.steps))
    return told


KINDS: dict[str, dict[str, Any]] = {
    "artifact get": {"kind": "artifact", "action": "get", "uri": "NAME"},
    "artifact put": {"kind": "artifact", "action": "put", "uri": "NAME", "data": "x"},
    "python script": {"kind": "python", "script": "NAME"},
    "script": {"kind": "script", "script": "NAME"},
    "transfer from it": {
        "kind": "transfer",
        "source": {"tool": "sqlite", "database": "NAME", "query": "SELECT 1"},
        "target": {"tool": "sqlite", "database": "other.db", "table": "t"},
    },
    "transfer into it": {
        "kind": "transfer",
        "source": {"tool": "sqlite", "database": ":memory:", "query": "SELECT 1"},
        "target": {"tool": "sqlite", "database": "NAME", "table": "t"},
    },
    "playbook path": {"kind": "playbook", "path": "NAME"},
    "sqlite": {"kind": "sqlite", "database": "NAME", "query": "SELECT 1"},
    "sqlite by address": {"kind": "sqlite", "database": "file:NAME?mode=ro", "query": "SELECT 1"},
    "sqlite with more behind": {
        "kind": "sqlite",
        "database": "file:NAME#x",
        "query": "SELECT 1",
    },
    "sqlite attached": {
        "kind": "sqlite",
        "database": ":memory:",
        "query": "ATTACH 'NAME' AS own",
    },
    "sqlite attached by a parameter": {
        "kind": "sqlite",
        "database": ":memory:",
        "query": "ATTACH ? AS own",
        "params": ["NAME"],
    },
    "duckdb": {"kind": "duckdb", "database": "NAME", "query": "SELECT 1"},
    "duckdb text": {"kind": "duckdb", "query": "SELECT content FROM read_blob('NAME')"},
}


def named(tool: Any, name: str) -> Any:
    if isinstance(tool, dict):
        return {key: named(value, name) for key, value in tool.items()}
    if isinstance(tool, list):
        return [named(value, name) for value in tool]
    return tool.replace("NAME", name) if isinstance(tool, str) else tool


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_that_names_the_store_is_refused(folder: Path, kind: str) -> None:
    if kind.startswith("duckdb"):
        pytest.importorskip("duckdb")
    definitions = [playbook(named(KINDS[kind], name)) for name in NAMES.values()]
    told = asyncio.run(said_of_all(folder, definitions))
    asked = zip(NAMES.values(), told, strict=True)
    assert [one for one in asked if "belongs to the store of this engine" not in one[1]] == []


def test_a_name_that_sqlite_would_work_out_is_refused_and_a_parameter_is_not(folder: Path) -> None:
    def attaching(name: str, *params: str) -> dict[str, Any]:
        query = f"ATTACH {name} AS other"
        tool = {"kind": "sqlite", "database": ":memory:", "query": query, "params": [*params]}
        return playbook(tool)

    for name in ("'own' || '.db'", "'own.db-' || 'shm'", "(SELECT 'own' || '.db')"):
        assert "does not take an expression" in asyncio.run(said(folder, attaching(name))), name

    async def other() -> str:
        async with Engine(folder / "own.db", settings=Settings()) as engine:
            run = await engine.start(attaching("?", "other.db"))
            return str((await engine.wait(run)).status)

    assert asyncio.run(other()) == "completed"


def test_a_pattern_that_finds_the_store_is_refused_and_another_is_not(folder: Path) -> None:
    pytest.importorskip("duckdb")
    (folder / "fine.csv").write_text("a\n1\n")
    patterns = ("own.*", "own.d[b]", "so?t.json", "**/own.db-*", "*")
    definitions = [playbook(named(KINDS["duckdb text"], pattern)) for pattern in patterns]
    told = asyncio.run(said_of_all(folder, definitions))
    asked = zip(patterns, told, strict=True)
    assert [one for one in asked if "belongs to the store of this engine" not in one[1]] == []

    async def others() -> str:
        async with Engine(folder / "own.db", settings=Settings()) as engine:
            tool = named(KINDS["duckdb text"], "f*.csv")
            return str((await engine.wait(await engine.start(playbook(tool)))).status)

    assert asyncio.run(others()) == "completed"


@pytest.mark.parametrize("source", ["csv", "jsonl"])
def test_a_loop_over_the_store_is_refused(folder: Path, source: str) -> None:
    loops = [{"in": {source: name}, "iterator": "row"} for name in NAMES.values()]
    definitions = [playbook({"kind": "noop"}, step={"loop": loop}) for loop in loops]
    asked = zip(NAMES, asyncio.run(said_of_all(folder, definitions)), strict=True)
    assert [one for one in asked if "belongs to the store of this engine" not in one[1]] == []


def test_a_secret_in_the_store_is_refused(folder: Path) -> None:
    entry = [{"name": "own", "kind": "file", "path": "own.db"}]
    uses = {"kind": "noop", "result": "{{ keychain.own }}"}
    told = asyncio.run(said(folder, playbook(uses, keychain=entry)))
    assert "belongs to the store of this engine" in told


def test_a_definition_in_the_store_is_refused(folder: Path) -> None:

    async def start() -> None:
        async with Engine(folder / "own.db", settings=Settings()) as engine:
            await engine.start(folder / "soft.json")

    with pytest.raises(AnabranchError, match="belongs to the store of this engine"):
        asyncio.run(start())
