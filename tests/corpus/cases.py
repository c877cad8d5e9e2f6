"""The definitions of the corpus, each with what is expected of it; `README.md` tells the form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import yaml

from acceptance.cases import ANYTHING, YAML, Act, filled

FOLDER = Path(__file__).parent
SUFFIXES = (".yaml", ".json")
EXPECTED = ".expect.yaml"
#: Kinds of tasks that a play really carries out, or asks somebody for.
INSIDE = frozenset({"noop", "python", "decision", "workbook"})

Places = Mapping[str, Callable[[], str]]


class Expectation(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    about: str
    # what is given
    input: dict[str, Any] = {}
    labels: dict[str, str] = {}
    start: str | None = None
    files: dict[str, str] = {}
    environment: dict[str, str] = {}
    register: list[str] = []
    participants: dict[str, Any] | None = None
    rules: str | None = None
    people: list[Act] = []
    # what `check` says
    errors: list[str] = []
    warnings: list[str] = []
    notes: list[str] = []
    says: list[str] = []
    # what comes of it
    status: str = "completed"
    result: Any = ANYTHING
    results: dict[str, Any] = {}
    runs: dict[str, int] = {}
    statuses: dict[str, str] = {}
    context: Any = ANYTHING
    problem: str | None = None
    written: dict[str, str] = {}
    # how it is played
    play: bool | None = None
    script: dict[str, Any] = {}
    played: dict[str, Any] = {}

    @property
    def alone(self) -> bool:
        """It needs an engine of its own."""
        return bool(self.environment or self.register) or self.participants is not None


@dataclass(frozen=True)
class Case:
    path: Path

    @property
    def name(self) -> str:
        return f"{self.path.parent.relative_to(FOLDER)}/{self.path.stem}"

    @property
    def beside(self) -> Path:
        return self.path.with_name(self.path.stem + EXPECTED)

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def document(self) -> Any:
        return yaml.load(self.text, YAML)

    @cached_property
    def raw(self) -> str:
        return self.beside.read_text(encoding="utf-8")

    def expectation(self, places: Places | None = None) -> Expectation:
        found = {name: make() for name, make in (places or {}).items() if name in self.raw}
        return msgspec.convert(filled(yaml.load(self.raw, YAML), found), Expectation)

    @property
    def playable(self) -> bool:
        expected = self.expectation()
        if expected.errors:
            return False
        if expected.play is not None:
            return expected.play
        return bool(expected.script) or self._stays_inside()

    def _stays_inside(self) -> bool:
        """For playbooks; other definitions say for themselves whether they can be played."""
        try:
            document = self.document
        except yaml.YAMLError:
            return False
        if not isinstance(document, dict) or "workflow" not in document or "keychain" in document:
            return False
        return set(_kinds(document["workflow"])) <= INSIDE


def _kinds(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("kind"), str):
            yield node["kind"]
        for key, value in node.items():
            if key in ("sql", "pages", "claim", "cursor") and isinstance(value, dict):
                yield key
            yield from _kinds(value)
    elif isinstance(node, list):
        for value in node:
            yield from _kinds(value)


def definitions() -> list[Path]:
    found = [path for path in sorted(FOLDER.rglob("*")) if path.suffix in SUFFIXES]
    return [path for path in found if not path.name.endswith(EXPECTED)]


def all_cases() -> list[Case]:
    return [case for case in map(Case, definitions()) if case.beside.exists()]


def playbooks_that_run() -> list[Case]:
    """For those who ask which words of the language are used by something that is tested."""
    found = [case for case in all_cases() if case.path.is_relative_to(FOLDER / "noetl")]
    return [case for case in found if not case.expectation().errors]
