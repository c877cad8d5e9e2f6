"""Every kind of error is in the list that guards are compared with, and on the page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.dialects.findings import Findings
from anabranch.dialects.nodes import Scalar
from anabranch.dialects.noetl.error_kinds import ERROR_KINDS
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.net.problems import Position
from anabranch.testing import play
from anabranch.work.kinds.commands import command
from anabranch.work.kinds.http import response
from anabranch.work.sql import duckdb, postgres, sqlite
from syntax import nodes_in

from ..support import HEAD, problems_of, read

SOURCE = Path(anabranch.__file__).parent
PAGE = SOURCE.parents[1] / "docs" / "playbook" / "errors.md"
AT = Position(1, 1, "<text>")
MAKERS = {"Fault", "fault", "failed", "postponed"}


def kinds_in(file: Path) -> Iterator[str]:
    for node in nodes_in(file.read_text()):
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            first = node.args[0]
            if name in MAKERS and isinstance(first, ast.Constant):
                yield str(first.value)


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
