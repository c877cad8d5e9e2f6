"""The documentation as a site: it builds without a warning, and the reference is complete."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.site.__main__ import ROOT, build, configuration
from tools.site.field_comments import field_comments
from tools.site.reference import PAGES, PUBLIC_MODULES, public_methods, public_names

from anabranch.kernel import events
from anabranch.net.problems import CODES
from anabranch.operations.definitions.prepare import check
from anabranch.settings import Settings
from anabranch.surfaces.cli.parser import VERBS
from anabranch.surfaces.cli.parser import build as grammar
from anabranch.surfaces.http.app import ALL_ROUTES

HOW_TOS = sorted((ROOT / "docs" / "how-to").glob("*.md"))


@pytest.mark.slow
@pytest.mark.soak  # links and anchors are looked at by `test_docs` as well
def test_the_site_builds_without_a_warning_and_can_be_searched(tmp_path: Path) -> None:
    site = build(tmp_path)
    found = json.loads((site / "search.json").read_text(encoding="utf-8"))
    texts = json.dumps(found)
    assert "join: all" in texts
    assert "ANABRANCH_STORE" in texts
    for page in ("index.html", "tutorial/6-test/index.html", "reference/python/index.html"):
        assert "<h1" in (site / page).read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation_once() -> None:
    listed = sorted(_leaves(configuration()["nav"]))
    there = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert listed == sorted([*there, *(f"reference/{name}" for name in PAGES)])


def _leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for each in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _leaves(each)


def test_the_reference_has_everything_that_there_is() -> None:
    text = {name: page() for name, page in PAGES.items()}
    assert [v for v in VERBS if f"\n## anabranch {v}\n" not in text["command-line.md"]] == []
    assert [c for c in CODES if f"| `{c}` |" not in text["problems.md"]] == []
    kinds = [kind.__struct_config__.tag for kind in events.Event.__args__]
    assert [kind for kind in kinds if f"\n## {kind}\n" not in text["events.md"]] == []
    paths = [f"| `{route.method} {route.path}` |" for route in ALL_ROUTES]
    assert [path for path in paths if path not in text["routes.md"]] == []
    fields = [each.name for each in dataclasses.fields(Settings)]
    assert [name for name in fields if f"| `{name}` |" not in text["settings.md"]] == []


def test_the_reference_has_the_usage_the_examples_and_the_exit_codes_of_a_verb() -> None:
    section = (
        PAGES["command-line.md"]().partition("\n## anabranch signal\n")[2].partition("\n## ")[0]
    )
    assert "anabranch signal [-h]" in section
    assert "RUN NAME [JSON]" in section  # the payload may be left out
    assert "anabranch signal last paid" in section
    assert "exit codes:" in section


def test_every_setting_has_a_comment_that_says_what_it_is() -> None:
    assert set(field_comments(Settings)) == {each.name for each in dataclasses.fields(Settings)}


def test_comments_above_and_behind_a_field_are_found() -> None:
    class Example:
        plain: int
        behind: int = 1  # what is behind
        #: what is above
        above: int = 2
        #: two lines,
        # the second of which is plain
        two: int = 3

    assert field_comments(Example) == {
        "behind": "what is behind",
        "above": "what is above",
        "two": "two lines, the second of which is plain",
    }


def test_every_public_name_and_method_has_a_docstring() -> None:
    without = []
    for name in PUBLIC_MODULES:
        module = importlib.import_module(name)
        for each in public_names(module):
            thing = getattr(module, each)
            if inspect.isclass(thing):
                found = [(f"{each}.{m}", vars(thing)[m]) for m in public_methods(thing)]
                without += [path for path, method in found if not method.__doc__]
            if (inspect.isclass(thing) or callable(thing)) and not thing.__doc__:
                without.append(each)
    assert without == []


@pytest.mark.parametrize("page", HOW_TOS, ids=lambda page: page.stem)
def test_definitions_and_commands_of_a_how_to_are_right(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for definition in re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        wrong = [each for each in check(definition).problems if each.severity != "note"]
        assert [each for each in wrong if each.code != "unknown-kind"] == []
    for line in re.findall(r"^ *(?:\S+ \S+ \* \* \*.*)?(anabranch .*?)(?: +#.*)?$", text, re.M):
        if not line.startswith(("anabranch.", "anabranch ]")):
            grammar().parse_args(shlex.split(line)[1:])
