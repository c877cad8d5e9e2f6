"""Every definition that there is in the repository, as the schemas are to judge it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from acceptance.cases import all_cases
from anabranch.dialects.arca.template_check import template_problems
from anabranch.dialects.nodes import Fields, plain
from anabranch.dialects.registry import compile_source
from anabranch.dialects.schema import schema_of
from anabranch.dialects.source import read_source
from anabranch.errors import DefinitionError
from anabranch.net.problems import Problem

from .noetl.test_documentation import EVERY

ROOT = Path(__file__).parents[2]
FOLDERS = ("examples", "src/anabranch", "tests/corpus", "tests/acceptance", "tests/dialects")
#: What stands behind an `else`, or in a rule that no step names, is not read at all.
UNREAD = frozenset({"dead-rule", "unused-rule"})


class Definition(NamedTuple):
    name: str
    language: str
    document: dict[str, Any]


class Judge:
    """Two validators that know nothing of Anabranch, and nothing of one another."""

    def __init__(self, language: str) -> None:
        self.schema = schema_of(language)
        self._python = Draft202012Validator(self.schema)
        self._rust = jsonschema_rs.validator_for(self.schema)

    def takes(self, document: Any) -> bool:
        """By the fast one; `told` asks the other."""
        return bool(self._rust.is_valid(document))

    def told(self, document: Any) -> str:
        """Why it is refused, by both; empty where it is not."""
        found = [f"{list(e.absolute_path)}: {e.message:.200}" for e in self._errors(document)]
        assert bool(found) != self.takes(document), "the two do not agree"
        return "; ".join(found)

    def _errors(self, document: Any) -> list[Any]:
        return list(self._python.iter_errors(document))


@cache
def judge(language: str) -> Judge:
    return Judge(language)


def language_of(document: dict[str, Any], dialect: str) -> str:
    """The schema for a document that a dialect has read."""
    holds = document.keys() & {"structure", "orchestration", "bundles", "format"}
    return "xrc137" if dialect == "xrc729" and not holds else dialect


def problems_of(text: str) -> tuple[str, tuple[Problem, ...]]:
    """The language of a text, and what its reader says; a template is what it becomes."""
    document = read_source(text, file="<text>")
    if not isinstance(document.root, Fields) or document.problems:
        return "", tuple(document.problems)
    if "template_id" in document.root:
        try:
            return "arca", tuple(template_problems(text))
        except DefinitionError as error:
            return "arca", error.problems
    compiled = compile_source(text, any_tool=True)
    return language_of(plain(document.root), compiled.dialect), compiled.problems


def errors_of(text: str) -> list[str]:
    return [each.code for each in problems_of(text)[1] if each.severity == "error"]


@cache
def accepted() -> tuple[Definition, ...]:
    """Those that the readers take."""
    found = []
    for name, text in _texts():
        language, problems = problems_of(text)
        if language and not any(each.severity == "error" for each in problems):
            root = read_source(text, file=name).root
            assert root is not None
            found.append(Definition(name, language, plain(root)))
    return tuple(found)


def _texts() -> Iterator[tuple[str, str]]:
    for case in all_cases():
        yield case.name, case.text
    for block in EVERY:
        yield f"page {block.id}", block.values[0].playbook  # type: ignore[union-attr]
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.*"))]
    for file in files:
        if file.suffix in (".yaml", ".json") and not file.name.endswith(".expect.yaml"):
            yield str(file.relative_to(ROOT)), file.read_text(encoding="utf-8", errors="replace")
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        fences = re.findall(r"```(?:yaml|json)\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
        for number, text in enumerate(fences, 1):
            yield f"{page.name} {number}", text
