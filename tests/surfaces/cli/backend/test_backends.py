"""The command line asks one port; the two backends behind it mirror each other."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from typing import Any

import pytest

from anabranch.surfaces import cli
from anabranch.surfaces.cli.backend.http.topic import pages

PACKAGE = "anabranch.surfaces.cli"
CLI = Path(cli.__path__[0])
FILES = sorted(CLI.rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(CLI).with_suffix("").parts
    return ".".join((PACKAGE, *(part for part in parts if part != "__init__")))


def imports_of(path: Path) -> set[str]:
    """Everything a file imports, also inside functions and for annotations only."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def importers_of(name: str) -> set[str]:
    return {str(path.relative_to(CLI)) for path in FILES if name in imports_of(path)}


def test_one_module_of_the_command_line_opens_stores() -> None:
    assert importers_of("anabranch.store.factory.open_store") == {"backend/local/store.py"}


def test_one_module_of_the_command_line_chooses_the_backend() -> None:
    """`run` and `pools` differ with the place and have a side of their own for a server, and only
    a server knows its workers."""
    assert importers_of(f"{PACKAGE}.backend.http.backend") == {
        "backend/factory.py",
        "commands/run/remote_run.py",
        "commands/serve/pools.py",
        "commands/serve/workers.py",
    }
    assert importers_of(f"{PACKAGE}.backend.local.backend") == {"backend/factory.py"}


def test_a_topic_has_its_counterpart_under_the_same_name() -> None:
    def topics(side: str, own: set[str]) -> set[str]:
        return {path.stem for path in (CLI / "backend" / side).glob("*.py")} - own

    assert topics("local", {"store", "audit"}) == topics(
        "http", {"topic", "pools"}
    )  # a store has none


def test_neither_backend_knows_the_other() -> None:
    for path in FILES:
        for side, other in (("local", "http"), ("http", "local")):
            if path.is_relative_to(CLI / "backend" / side):
                there = f"{PACKAGE}.backend.{other}"
                assert not {name for name in imports_of(path) if name.startswith(there)}, path


def test_no_modules_of_the_backends_import_each_other_in_a_ring() -> None:
    graph = {
        module_of(path): imports_of(path)
        for path in FILES
        if path.is_relative_to(CLI / "backend") and path.name != "__init__.py"
    }
    while leaves := {name for name, needs in graph.items() if not (needs - {name}) & graph.keys()}:
        graph = {name: needs for name, needs in graph.items() if name not in leaves}
    assert not graph


@pytest.mark.parametrize(
    ("most", "asked"),
    [
        (None, [(None, 2), (2, 2), (4, 2)]),
        (3, [(None, 2), (2, 1)]),
        (2, [(None, 2)]),
        (0, []),
    ],
)
def test_pages_are_asked_for_until_there_is_no_next_or_enough_was_asked(
    most: int | None, asked: list[tuple[int | None, int]]
) -> None:
    seen: list[tuple[int | None, int]] = []

    async def ask(after: int | None, limit: int) -> dict[str, Any]:
        seen.append((after, limit))
        begin = after or 0
        return {"items": [], "next": begin + limit if begin + limit < 5 else None}

    async def all_pages() -> int:
        return len([page async for page in pages(ask, most=most, size=2)])

    assert asyncio.run(all_pages()) == len(asked)
    assert seen == asked
