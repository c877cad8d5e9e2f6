"""Helpers for reading and compiling short texts."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec

from anabranch.dialects.nodes import plain
from anabranch.dialects.port import Compiled
from anabranch.dialects.registry import compile_source
from anabranch.dialects.source import Document, SourceLimits, read_source
from anabranch.expressions.port import Constant
from anabranch.net.draw import svg
from anabranch.net.net import Net, Step
from anabranch.net.problems import CODES, Problem

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: test}\n"


def read(text: str | bytes, file: str = "<text>", **limits: int) -> Document:
    return read_source(text, file=file, limits=SourceLimits(**limits))


def value_of(text: str, file: str = "<text>") -> Any:
    document = read(text, file)
    assert document.root is not None, document.problems
    assert not document.problems
    return plain(document.root)


def places(problems: tuple[Problem, ...]) -> list[tuple[int, int, str]]:
    return [(p.position.line, p.position.column, p.code) for p in problems]


def codes(compiled: Compiled, severity: str | None = None) -> list[str]:
    found = compiled.problems
    return [p.code for p in found if severity is None or p.severity == severity]


def documented_severity(code: str) -> str:
    """What the table of problem codes in the documentation says."""
    path = Path(__file__).parents[2] / "docs" / "playbook" / "problems.md"
    page = path.read_text(encoding="utf-8")
    found = re.search(rf"^\| `{code}` \| (\w+) \|", page, re.MULTILINE)
    return found.group(1) if found else "undocumented"


def steps(*lines: str) -> str:
    return "workflow:\n" + "\n".join(lines) + "\n"


def playbook(body: str, **options: Any) -> Compiled:
    """Compile a playbook whose head is already there; `body` starts in line 4."""
    return compile_source(HEAD + dedent(body), **options)


def net_of(body: str, **options: Any) -> Net:
    compiled = playbook(body, **options)
    assert compiled.net is not None, "\n".join(map(str, compiled.problems))
    return compiled.net


def step_of(step: str, **options: Any) -> Step:
    """Compile a playbook of one step named `s`, given the lines below its name."""
    body = "workflow:\n- step: s\n" + "".join(f"  {line}\n" for line in dedent(step).splitlines())
    return net_of(body, **options).steps["s"]


def problems_of(step: str, **options: Any) -> tuple[Problem, ...]:
    """The problems of such a playbook; the first of the given lines is line 6, column 3."""
    body = "workflow:\n- step: s\n" + "".join(f"  {line}\n" for line in dedent(step).splitlines())
    return playbook(body, **options).problems


def shape(value: Any) -> Any:
    """A net (or a part of one) as plain data: expressions as their text, places left out."""
    if isinstance(value, Constant):
        return shape(value.value)
    if hasattr(value, "evaluate"):
        return ("expression", value.text)
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
        kept = [name for name in names if name not in ("position", "fingerprint")]
        return (type(value).__name__, {name: shape(getattr(value, name)) for name in kept})
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [shape(each) for each in value]
    return value


def check_outcome(compiled: Compiled) -> None:
    """What comes of any text on one line: a net that can be drawn, or problems with their place."""
    assert (compiled.net is None) == bool(compiled.errors)
    for problem in compiled.problems:
        assert problem.code in CODES
        assert problem.message
        assert problem.position.line == 1
    if compiled.net is not None:
        assert "<svg" in svg(compiled.net)
