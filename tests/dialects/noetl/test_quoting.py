"""Data inside commands, queries and code: `check` warns, and the filters quote."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anabranch.dialects.registry import compile_source, load
from anabranch.errors import ExpressionError
from anabranch.expressions.jinja.jinja import Jinja
from anabranch.net.problems import Problem

ROOT = Path(__file__).parents[3]
CODES = ("unquoted-template", "quoted-twice")
NASTY = [
    "", "plain", "two words", "it's", '"', "`id`", "$(id)", "a;b", "a\nb", "\\", "\\'", "'; --",
    "'''", '"""', "ä€😀", "-rf", "a'b\"c$d", "{{ x }}", "%s", "#", "~", "*",
]  # fmt: skip


def quoted(value: Any, name: str) -> str:
    return str(Jinja().rendered(f"{{{{ x | {name} }}}}").evaluate({"x": value}))


def found(tool: str, kind: str) -> list[Problem]:
    text = (
        "apiVersion: noetl.io/v10\nkind: Playbook\nmetadata: {name: q}\nworkload: {a: 1}\n"
        f"workflow:\n  - step: s\n    tool:\n      kind: {kind}\n      {tool}\n"
    )
    compiled = compile_source(text)
    assert not compiled.errors, compiled.errors
    return [problem for problem in compiled.problems if problem.code in CODES]


# -- the filters -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", NASTY)
def test_sh_gives_the_shell_one_word(text: str) -> None:
    said = subprocess.run(
        ["/bin/sh", "-c", f"printf %s. {quoted(text, 'sh')}"], capture_output=True, check=True
    )
    assert said.stdout.decode() == f"{text}."


@pytest.mark.parametrize("value", [{"a": [1, None, "it's ü"]}, [[1, True]], [{"a": 1}, "b c"]])
def test_sh_gives_the_json_of_what_has_no_words(value: Any) -> None:
    said = subprocess.run(
        ["/bin/sh", "-c", f"printf '%s\\n' {quoted(value, 'sh')}"], capture_output=True, check=True
    )
    words = said.stdout.decode().splitlines()
    values = value if isinstance(value, list) else [value]
    assert [each if isinstance(each, str) else json.loads(word)
            for each, word in zip(values, words, strict=True)] == values  # fmt: skip


def test_sh_gives_the_words_of_a_list() -> None:
    said = subprocess.run(
        ["/bin/sh", "-c", f"printf '%s|' {quoted([*NASTY[1:], 3], 'sh')}"],
        capture_output=True,
        check=True,
    )
    assert said.stdout.decode() == "".join(f"{word}|" for word in [*NASTY[1:], 3])


@pytest.mark.parametrize(
    ("value", "word"),
    [(None, "''"), (True, "true"), (False, "false"), (5, "5"), (1.5, "1.5"), ([], "")],
)
def test_sh_writes_what_is_no_text(value: Any, word: str) -> None:
    assert quoted(value, "sh") == word


@pytest.mark.parametrize("quoting", ["sh", "py", "sql"])
def test_a_missing_value_is_not_quoted_as_nothing(quoting: str) -> None:
    with pytest.raises(ExpressionError, match="'nothing' is undefined"):
        Jinja().rendered(f"{{{{ nothing | {quoting} }}}}").evaluate({})


@pytest.mark.parametrize("value", [*NASTY, None, True, 7, 1.5, [1, "a'b"], {"k": ["v", None]}])
def test_py_gives_a_literal_of_the_value(value: Any) -> None:
    import ast

    assert ast.literal_eval(quoted(value, "py")) == value


@pytest.mark.parametrize("value", [*NASTY, None, 7, 1.5, -2])
def test_sql_gives_a_literal_of_the_value(value: Any) -> None:
    database = sqlite3.connect(":memory:")
    try:
        assert database.execute(f"select {quoted(value, 'sql')}").fetchone() == (value,)
    finally:
        database.close()
    assert (quoted(True, "sql"), quoted(False, "sql")) == ("TRUE", "FALSE")


@pytest.mark.parametrize(
    ("value", "name"),
    [("a\0b", "sh"), ("a\0b", "sql"), ([1], "sql"), ({}, "sql")],
)
def test_what_cannot_be_quoted_is_an_error(value: Any, name: str) -> None:
    with pytest.raises(ExpressionError, match=f"{name}"):
        quoted(value, name)


# -- the warnings ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "tool", "words"),
    [
        ("shell", 'command: "ls {{ workload.a }}"', "`env`, or write `workload.a | sh`"),
        ("shell", 'command: "{{ workload.a }}"', "`env`"),
        ("shell", 'cmds: ["true", "ls {{ a | upper }}"]', "`a | upper | sh`"),
        ("shell", 'command: "{% for f in a %}rm {{ f }}; {% endfor %}"', "`f | sh`"),
        ("shell", 'command: "ls {{ a | tojson }}"', "| sh`"),
        ("shell", 'command: "ls {{ a | py }}"', "| sh`"),
        ("shell", "command: \"ls {{ a if b else 'x' }}\"", "`env`"),
        ("shell", "command: \"ls {{ a | default('x') }}\"", "`env`"),
        ("python", "code: \"result = '{{ a }}'\"", "`args`, or write `a | py`"),
        ("sqlite", "command: \"select '{{ a }}'\"", "`params`, or write `a | sql`"),
        ("postgres", 'query: "select {{ a }}"', "`params`"),
        ("duckdb", 'commands: ["select 1", "select {{ a ~ 1 }}"]', "`params`"),
    ],
)
def test_check_warns_of_data_that_becomes_part_of_a_text(kind: str, tool: str, words: str) -> None:
    (problem,) = found(tool, kind)
    assert (problem.code, problem.severity) == ("unquoted-template", "warning")
    assert words in problem.hint


@pytest.mark.parametrize(
    ("kind", "tool"),
    [
        ("shell", 'command: "ls {{ a | sh }}"'),
        ("shell", 'command: "ls {{ a | int }} {{ b | length }} {{ 5 }} {{ execution_id }}"'),
        ("shell", "command: \"ls {{ 'x' if a else 'y' }} {{ a == b }} {{ a is defined }}\""),
        ("shell", "command: \"ls {{ a | map('sh') | join(' ') }}\""),
        ("shell", 'command: "ls {{ a | int | default(3) }} {{ (a | int) + 1 }}"'),
        ("shell", 'command: "echo $A"\n      env: {A: "{{ a }}"}'),
        ("shell", 'command: "pwd"\n      cwd: "{{ a }}"'),
        ("python", 'code: result = x\n      args: {x: "{{ a }}"}'),
        ("python", 'code: "result = {{ a | py }}"'),
        ("python", "code: \"result = f'{{{x}}}'\""),
        ("sqlite", 'command: "select :a"\n      params: {a: "{{ a }}"}'),
        ("sqlite", 'command: "select {{ a | sql }}"'),
        ("sqlite", 'command: "{% if a %}select 1{% else %}select 2{% endif %}"'),
        ("http", 'url: "http://127.0.0.1/{{ a }}"'),
    ],
)
def test_check_is_silent_where_a_template_is_safe(kind: str, tool: str) -> None:
    assert found(tool, kind) == []


def test_check_warns_of_quotes_around_what_is_quoted() -> None:
    (problem,) = found("command: \"ls '{{ a | sh }}'\"", "shell")
    assert problem.code == "quoted-twice"


def _documented() -> list[Any]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        pytest.param(block, id=f"{page.name}-{number}")
        for page in pages
        for number, block in enumerate(
            re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        )
        if "{{" in block and re.search(r"command|cmds|query|code", block)
    ]


@pytest.mark.parametrize("block", _documented())
def test_the_documentation_quotes_what_it_shows(block: str) -> None:
    if "workflow:" not in block:
        step = "\n".join("    " + line for line in block.splitlines())
        block = f"workflow:\n  - step: shown\n{step}"
    head = "" if "apiVersion" in block else "apiVersion: noetl.io/v10\nkind: Playbook\n"
    name = "" if "metadata:" in block else "metadata: {name: shown}\n"
    problems = compile_source(head + name + block).problems
    assert [str(problem) for problem in problems if problem.code in CODES] == []


@pytest.mark.parametrize(
    "path",
    [
        path
        for folder in ("examples", "tests/acceptance/playbooks")
        for path in sorted((ROOT / folder).rglob("*.yaml"))
        if ".expect." not in path.name
    ],
    ids=lambda path: path.stem,
)
def test_playbooks_here_quote_what_they_take_in(path: Path) -> None:
    assert [str(problem) for problem in load(path).problems if problem.code in CODES] == []


def test_the_interpreter_agrees_about_literals_with_quotes_of_every_kind() -> None:
    text = "".join(NASTY)
    code = f"import sys; sys.stdout.buffer.write({quoted(text, 'py')}.encode())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert said.stdout.decode() == text
