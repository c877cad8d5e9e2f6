"""Whatever is asked of a server, and whatever runs beside it: its locks on the store stay.

A process loses all its locks on a file when it closes any descriptor of it. A server without them
would lose its write-ahead log to the next process that opens and closes the store.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from anabranch.surfaces.http.app import ALL_ROUTES
from anabranch.surfaces.ui import routes

from .beside import LOOP, SERVERS, VERBS, Site, beside, gated, locks_of, site, verbs_with_a_store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="/proc/locks is Linux'"),
]

SHARED = "READ 1073741826 1073742335"  # by this one others know that the database is in use
USED = "READ 128 128"  # and by this one that its shared memory is


def has_its_locks(at: Site) -> bool:
    """A lock that was lost does not come again. The kernel tells of all locks of the machine piece
    by piece, and where others go in between it leaves one out."""
    return any(_shows_its_locks(at) for _ in range(5))


def _shows_its_locks(at: Site) -> bool:
    database = locks_of(at.process.pid, at.store)
    memory = locks_of(at.process.pid, Path(f"{at.store}-shm"))
    return SHARED in database and USED in memory


def addresses() -> list[tuple[str, str, Any]]:
    """(method, path, body) of everything the server answers; pages included."""
    found: list[tuple[str, str, Any]] = []
    for route in ALL_ROUTES:
        changes = route.method in ("POST", "PATCH")
        found.append((route.method, route.path, unwaiting(route.example) if changes else None))
    for page in routes.routes():
        path = page.path.replace("{anything:(?!api/).*}", "nowhere")
        found.append((page.method, path, {} if page.method == "POST" else None))
    return found


def unwaiting(example: Any) -> Any:
    """The same, without a wait for work that will never be there."""
    given = dict(example or {})
    return {**given, "wait_seconds": 0} if "wait_seconds" in given else given


def filled(path: str, run: str) -> str:
    for name, value in {"run": run, "sha256": "0" * 64, "attempt": "1", "step": "each"}.items():
        path = path.replace(f"{{{name}}}", value)
    path = path.replace("{", "").replace("}", "")
    return f"{path}?seconds=0" if path.endswith("/wait") else path


def test_the_table_of_the_second_terminal_has_every_verb_that_takes_a_store() -> None:
    assert verbs_with_a_store() == VERBS.keys() | SERVERS


def test_every_route_and_page_leaves_the_server_its_locks(tmp_path: Path) -> None:
    with site(tmp_path) as at:
        run = at.start(LOOP)
        assert at.ended(run) == "completed"
        assert has_its_locks(at)
        for method, path, body in addresses():
            status, answer = at.ask(method, filled(path, run), body)
            assert status != 500, (method, path, answer)
            assert has_its_locks(at), f"lost by {method} {path}"


def test_every_verb_beside_a_server_leaves_it_its_locks_and_its_log(tmp_path: Path) -> None:
    with site(tmp_path) as at, beside(tmp_path, at.store) as terminal:
        run = at.start(LOOP)
        names = {"run": run, "gate": gated(at, "g"), "cancel": gated(at, "c")}
        at.ended(run)
        assert at.ask("GET", "/api/v1/runs")[0] == 200
        log = Path(f"{at.store}-wal").stat().st_ino
        made = terminal.say("token create", "--scope", "read", "--name", "t", "--json")
        names["token"] = json.loads(made[1])["id"]
        for verb in VERBS:
            terminal.do(verb, **names)
            assert has_its_locks(at), f"lost by {verb}"
            assert Path(f"{at.store}-wal").stat().st_ino == log, f"lost by {verb}"
        assert at.process.poll() is None
        assert at.ended("g") == "completed"
        assert at.ended("c") == "cancelled"


TASKS: list[dict[str, Any]] = [
    {"kind": "artifact", "action": "get", "uri": "s.db"},
    {"kind": "artifact", "action": "put", "uri": "s.db-wal", "data": "x"},
    {"kind": "python", "script": "s.db-shm"},
    {"kind": "playbook", "path": "link.db"},
    {"kind": "sqlite", "database": "link.db", "query": "SELECT 1"},
    {"kind": "shell", "command": "cat s.db s.db-wal s.db-shm > copy"},
]

#: Names that no look at a statement recognises: DuckDB opens the files.
DUCKDB_TASKS: list[dict[str, Any]] = [
    {"kind": "duckdb", "query": "SELECT content FROM read_blob('s.d' || 'b')"},
    {"kind": "duckdb", "query": "SELECT content FROM read_blob('s.db-' || 'shm')"},
    {"kind": "duckdb", "query": "SELECT content FROM read_blob(?)", "params": ["s.db"]},
    {"kind": "duckdb", "query": "SELECT content FROM read_blob($$s.db$$)"},
]


def test_duckdb_statements_that_open_the_store_leave_the_server_its_locks(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "reads"}}
    with site(tmp_path, "--files-allowed", "any") as at:
        for tool in DUCKDB_TASKS:
            definition: Any = {**head, "workflow": [{"step": "one", "tool": tool}]}
            assert at.ended(at.start(definition)) == "completed", tool
            assert has_its_locks(at), tool


def test_tasks_that_name_the_store_leave_the_server_its_locks(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to("s.db")
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "reads"}}
    with site(tmp_path) as at:
        for tool in TASKS:
            definition: Any = {**head, "workflow": [{"step": "one", "tool": tool}]}
            status = at.ended(at.start(definition))
            assert status == ("completed" if tool["kind"] == "shell" else "failed"), tool
            assert has_its_locks(at), tool
        loop = {"in": {"jsonl": "s.db"}, "iterator": "row"}
        step = {"step": "one", "loop": loop, "tool": {"kind": "noop"}}
        looping: Any = {**head, "workflow": [step]}
        assert at.ended(at.start(looping)) == "failed"
        assert has_its_locks(at)
