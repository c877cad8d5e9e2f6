"""The playbooks of the acceptance suite, each with what is expected of it.

A case is `playbooks/<area>/<name>.yaml` and beside it `<name>.expect.yaml`. Texts of the latter may
hold `$TMP` (a fresh folder), `$HERE` (the folder of the playbook), `$HTTP` (the clinic, under a
prefix of its own) and `$POSTGRES` (a database). What such a text stands for is made when asked for.

A mapping that is expected with the key `...` need not hold more than what is named; the text `...`
is equal to anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import yaml

FOLDER = Path(__file__).parent / "playbooks"
YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # hundreds are read before the first test
ANYTHING = "..."

Places = Mapping[str, Callable[[], str]]


class Act(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What somebody does when the run stands still."""

    patch: dict[str, Any] | None = None
    decide: str | None = None  # the step whose gate is open
    verdict: str = "fulfil"
    actor: str = ""
    reason: str = ""
    evidence: Any = None
    cancel: str | None = None  # the reason
    signal: str | None = None  # its name
    payload: Any = None


class Expectation(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    # what is given
    input: dict[str, Any] = {}
    environment: dict[str, str] = {}
    files: dict[str, str] = {}
    people: list[Act] = []
    # what comes of it
    status: str = "completed"
    exit: int = 0
    result: Any = ANYTHING
    runs: dict[str, int]  # of every step that ran
    statuses: dict[str, str] = {}  # of the last run, where it is not `done`
    results: dict[str, Any] = {}  # of steps
    context: dict[str, Any] | None = None
    fanin: dict[str, dict[str, Any]] = {}  # by step: what its last loop came to
    joins: list[dict[str, Any]] = []
    problem: str | None = None  # a part of the message
    waits_for: str | None = None  # a part of what `explain` says when the run first stands still
    written: dict[str, str] = {}  # files that are there afterwards
    secrets: list[str] = []  # texts that must be in no file of the store
    # what is said about the text
    warnings: list[str] = []
    notes: list[str] = []
    # how it is played
    script: dict[str, Any] | None = None  # answers for steps that reach outside
    play: bool | None = None  # default: where nothing reaches outside, or a script is there
    seconds: float | None = None  # virtual


@dataclass(frozen=True)
class Case:
    path: Path

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}"

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def document(self) -> Any:
        return yaml.load(self.text, YAML)

    @cached_property
    def _raw(self) -> str:
        return self.path.with_suffix(".expect.yaml").read_text(encoding="utf-8")

    def needs(self, place: str) -> bool:
        return place in self._raw

    def expectation(self, places: Places) -> Expectation:
        given = yaml.load(self._raw, YAML)
        found = {place: make() for place, make in places.items() if place in self._raw}
        return msgspec.convert(filled(given, found), Expectation)


def all_cases() -> list[Case]:
    paths = [path for path in sorted(FOLDER.rglob("*.yaml")) if ".expect" not in path.name]
    return [Case(path) for path in paths if path.with_suffix(".expect.yaml").exists()]


def filled(value: Any, found: Mapping[str, str]) -> Any:
    match value:
        case dict():
            return {key: filled(item, found) for key, item in value.items()}
        case list():
            return [filled(item, found) for item in value]
        case str():
            for place, text in found.items():
                value = value.replace(place, text)
            return value
        case _:
            return value


def fits(found: Any, expected: Any) -> bool:
    """Whether a value is what was expected of it."""
    if isinstance(expected, str) and expected == ANYTHING:
        return True
    if isinstance(expected, dict) and isinstance(found, dict):
        wanted = {key: value for key, value in expected.items() if key != ANYTHING}
        if ANYTHING not in expected and set(wanted) != set(found):
            return False
        return all(key in found and fits(found[key], value) for key, value in wanted.items())
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(fits, found, expected))
    return type(found) is type(expected) and bool(found == expected)
