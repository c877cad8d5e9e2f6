"""Every kind of error is in the list that guards are compared with, and on the page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import anabranch
from anabranch.dialects.findings import Findings
from anabranch.dialects.nodes import Scalar
from anabranch.dialects.noetl.error_kinds import ERROR_KINDS, OF_WORK, error_kinds_of
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.net.problems import Position
from anabranch.testing import play
from anabranch.work.kinds import artifact, secrets, transfer
from anabranch.work.kinds.buckets import buckets, gcs, login
from anabranch.work.kinds.commands import command, container, script, shell
from anabranch.work.kinds.http import performer, response
from anabranch.work.kinds.nats import client
from anabranch.work.kinds.nats import performer as nats
from anabranch.work.kinds.python import exception_kinds, inline, processes
from anabranch.work.kinds.python import performer as python
from anabranch.work.sql import duckdb, postgres, sqlite
from syntax import nodes_in

from ..support import HEAD, problems_of, read

SOURCE = Path(anabranch.__file__).parent
PAGE = SOURCE.parents[1] / "docs" / "playbook" / "errors.md"
AT = Position(1, 1, "<text>")
MAKERS = {"Fault", "fault", "failed", "postponed"}
#: Where the work of each kind says what went wrong.
_CALLS = (performer, response)
_BUCKETS = (*_CALLS, buckets, login)
_SQL = {"postgres": (postgres,), "sqlite": (sqlite,), "duckdb": (duckdb,)}
MODULES: Mapping[str, tuple[ModuleType, ...]] = {
    **_SQL,
    "http": _CALLS,
    "transfer": (transfer, *_CALLS, postgres, sqlite, duckdb),
    "gcs": (gcs, *_BUCKETS),
    "artifact": (artifact, *_BUCKETS),
    "secrets": (secrets, *_CALLS),
    "nats": (client, nats),
    "python": (python, inline, processes, exception_kinds),
    "shell": (shell, command),
    "script": (script, command),
    "container": (container, command),
}


def kinds_in(file: Path) -> Iterator[str]:
    for node in nodes_in(file.read_text()):
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            first = node.args[0]
            if name in MAKERS and isinstance(first, ast.Constant):
                yield str(first.value)
            for keyword in node.keywords:  # the kind of a command's other exit codes
                if keyword.arg == "other" and isinstance(keyword.value, ast.Constant):
                    yield str(keyword.value.value)


def words_in(module: ModuleType) -> set[str]:
    """Every text in it, wherever it stands."""
    nodes = nodes_in(Path(str(module.__file__)).read_text())
    return {str(node.value) for node in nodes if isinstance(node, ast.Constant)}


def test_every_kind_that_is_written_anywhere_is_known() -> None:
    files = [
        file for part in ("kernel", "work", "runtime") for file in (SOURCE / part).rglob("*.py")
    ]
    found = {kind for file in files for kind in kinds_in(file)}
    assert len(found) > 30
    assert found - ERROR_KINDS == set()


def test_every_kind_of_a_table_is_known() -> None:
    tables: list[Mapping[Any, tuple[str, bool]]]
    tables = [duckdb._KINDS, postgres._KINDS, sqlite._KINDS, command.EXIT_KINDS]
    found = {kind for table in tables for kind, _ in table.values()} | {*response._KINDS.values()}
    assert len(found) > 10
    assert found - ERROR_KINDS == set()


def test_every_task_can_give_what_its_source_names() -> None:
    """Each kind of error that a module of its work makes is one of the table, and those that only
    some tasks give are named somewhere in the work of each of them."""
    for task, modules in MODULES.items():
        files = [Path(str(module.__file__)) for module in modules]
        made = {kind for file in files for kind in kinds_in(file)}
        if task in ("shell", "script", "container"):
            made |= {kind for kind, _ in command.EXIT_KINDS.values()}
        assert made - error_kinds_of([task]) == set(), task
        words = set().union(*map(words_in, modules))
        assert {kind for kind, tasks in OF_WORK.items() if task in tasks} - words == set(), task
    assert {task for tasks in OF_WORK.values() for task in tasks} == MODULES.keys()


def test_the_page_names_the_tasks_that_give_it() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \|[^|]+\| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)
    said = {kind: sorted(re.findall("`([a-z]+)`", tasks)) for kind, tasks in rows}
    assert said == {kind: sorted(tasks) for kind, tasks in OF_WORK.items()}
    assert {tasks for kind, tasks in rows if not said[kind]} == {"all"}


def test_the_page_has_each_of_them_once() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(ERROR_KINDS)


@pytest.mark.parametrize(
    ("guard", "hint"),
    [
        ("error.kind == 'tmeout'", "timeout"),
        ("'conection' == outcome.error.kind", "connection"),
        ("outcome.error.kind in ['timeout', 'rate_limits']", "rate_limit"),
        ("error.kind == 'timeout'", ""),
        ("error.kind == 'my_own_word'", ""),
        ("ctx.kind == 'tmeout'", ""),
    ],
)
def test_a_guard_that_names_no_kind_is_found(guard: str, hint: str) -> None:
    text = f'tool: {{kind: noop}}\nnext: {{arcs: [{{step: s, when: "{{{{ {guard} }}}}"}}]}}'
    found = [one for one in problems_of(text) if one.code == "unknown-error-kind"]
    assert [hint in str(one.hint) for one in found] == ([True] if hint else [])


@pytest.mark.parametrize("word", ["timeout", "step_timeout"])
def test_a_step_that_runs_out_of_time_has_the_same_word_as_a_task(word: str) -> None:
    played = play(
        f"""{HEAD}executor: {{spec: {{on_failure: handled}}}}
workflow:
  - step: ask
    spec: {{timeout: 300ms}}
    tool: {{kind: decision, ask: "?"}}
    next:
      arcs:
        - step: late
          when: "{{{{ error.kind in ['{word}', 'lost'] }}}}"
          args: {{kind: "{{{{ error.kind }}}}", same: "{{{{ error.kind == '{word}' }}}}"}}
  - step: late
    tool: {{kind: noop, result: ["{{{{ args.kind }}}}", "{{{{ args.same }}}}"]}}
"""
    )
    assert played.result == ["timeout", True]


def test_an_error_of_an_older_log_has_the_word_of_today() -> None:
    event = {"ending": "failed", "error": {"kind": "step_timeout", "message": "too late"}}
    guard = TemplateCompiler(read("{}"), Findings()).condition(
        Scalar("{{ error.kind == 'step_timeout' and outcome.error.kind == 'timeout' }}", AT), "it"
    )
    assert guard.evaluate({"event": event}) is True
