"""Every keyword has its heading, every code its line, and every example of the pages works."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
import yaml

import anabranch
from acceptance.cases import all_cases
from acceptance.spellings import SPELLINGS
from acceptance.vocabulary import Vocabulary, recorded
from anabranch.dialects.noetl.names import RESERVED
from anabranch.dialects.noetl.sources import DESCRIPTORS
from anabranch.dialects.noetl.tasks.credentials import ENTRIES
from anabranch.dialects.noetl.tasks.keys import KINDS
from anabranch.dialects.registry import compile_source, load
from anabranch.expressions.jinja.filters import filters
from anabranch.expressions.jinja.limits import TemplateLimits
from anabranch.expressions.jinja.meter import Meter
from anabranch.net.draw import dot, mermaid, svg
from anabranch.net.problems import CODES
from anabranch.testing import play
from anabranch.work.loops.collections import claims, pages, queries
from corpus.cases import playbooks_that_run

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
FOLDER = ROOT / "docs" / "playbook"
INDEX = ROOT / "docs" / "playbooks.md"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}

#: Which page has the keys of a place.
PAGE_OF = {
    "playbook": "document",
    "metadata": "document",
    "input": "document",
    "concurrency": "document",
    "workbook": "document",
    "step": "step",
    "admit": "admission",
    "next": "routing",
    "arc": "routing",
    "executor": "executor",
    "task": "tool",
    "rule": "rules",
    "then": "rules",
    "result": "results",
    "loop": "loops",
    "fanout": "fanout",
    "task.policy": "rules",
    "keychain entry": "keychain",
}
#: Keys of the root that the language does not have.
EXTENSIONS = {("playbook", "spec")}


def page_of(place: str) -> str:
    found = PAGE_OF.get(place) or PAGE_OF.get(place.partition(".")[0])
    assert found is not None, f"no page is about {place}"
    return found


def headings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#")]


def section(page: str, heading: str) -> str:
    """What stands under a heading of the second order."""
    pattern = rf"^## [^\n]*`{re.escape(heading)}`[^\n]*\n(.*?)(?=^## |\Z)"
    found = re.search(pattern, PAGES[page], re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no section {heading}"
    return found.group(1)


# -- keywords --------------------------------------------------------------------------------


@cache
def vocabulary() -> Vocabulary:
    """What the readers of playbooks ask for, over every playbook that there is; takes seconds."""
    return recorded([*all_cases(), *playbooks_that_run()], ["acceptance_price"])


def test_every_keyword_has_its_heading_and_stands_in_an_example() -> None:
    keys = [
        (place, key)
        for place, key in vocabulary().every()
        if not place.startswith("kind ") and (place, key) not in EXTENSIONS
    ]
    assert len(keys) > 100
    assert [missing for place, key in keys for missing in missing_of(place, key)] == []


def missing_of(place: str, key: str) -> Iterator[str]:
    text = PAGES[page_of(place)]
    aliases = PAGES["kinds"] + PAGES["spellings"]
    if place == "task" and key in ("db", "endpoint", "payload", "compression"):
        if f"`{key}`" not in aliases:  # other names for keys of a kind
            yield f"{place}: no page names {key}"
        return
    if not any(f"`{key}`" in heading for heading in headings(text)):
        yield f"{place}: no heading for {key}"
    if (place, key) not in {("playbook", "vars"), ("task", "policy")}:
        examples = "\n".join(block.text for block in blocks(text))
        if not re.search(rf"\b{re.escape(key)}:", examples):
            yield f"{place}: no example has {key}"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_section_with_a_heading_for_each_of_its_keys(kind: str) -> None:
    found = headings(section("kinds", kind))
    assert [key for key in KINDS[kind] if not any(f"`{key}`" in line for line in found)] == []


def test_every_choice_is_named_on_its_page() -> None:
    for (place, key), words in vocabulary().choices.items():
        text = PAGES["kinds" if place.startswith("kind ") else page_of(place)]
        assert [word for word in words if f"`{word}`" not in text] == [], (place, key)


def test_every_secret_has_a_section_with_its_fields() -> None:
    for kind, fields in ENTRIES.items():
        text = section("keychain", kind)
        assert [field for field in fields if f"`{field}`" not in text] == [], kind


def test_every_collection_has_its_heading_and_its_options() -> None:
    text = PAGES["loops"]
    assert [word for word in DESCRIPTORS if f"### `{word}`" not in text] == []
    options = {*pages._KNOWN, *queries._OWN, *claims._OWN} - {"owner"}  # the engine writes it
    assert [word for word in options if f"`{word}`" not in text] == []


def test_every_name_has_its_heading_and_every_filter_is_listed() -> None:
    text = PAGES["templates"]
    assert [name for name in (*RESERVED, "env") if f"### `{name}`" not in text] == []
    assert [name for name in filters(Meter(TemplateLimits())) if f"`{name}`" not in text] == []


#: Spellings that are shapes rather than words; each has its line in the tables.
SHAPES = ("next", "task.label", "task.spec", "rule.", "workbook", "step.spec.f")


def test_every_spelling_is_in_the_tables() -> None:
    text = PAGES["spellings"]
    for spelling in SPELLINGS:
        word = re.split(r"[.: ]+", spelling)[-1]
        if spelling.startswith(
            ("next", "task.label", "task.spec", "rule.", "workbook", "step.spec.f")
        ):
            continue  # shapes, not words; each has its line
        assert re.search(rf"`[^`]*\b{word}\b", text), spelling


def test_every_problem_code_is_in_the_table() -> None:
    table = PAGES["problems"].partition("## Problem codes")[2]
    assert [code for code in CODES if f"| `{code}` |" not in table] == []


def test_the_index_names_every_page() -> None:
    index = INDEX.read_text(encoding="utf-8")
    assert [name for name in PAGES if f"(playbook/{name}.md)" not in index] == []


def test_every_link_to_a_heading_leads_to_one() -> None:
    for name, text in {**PAGES, "index": INDEX.read_text(encoding="utf-8")}.items():
        for target, anchor in re.findall(r"\]\(([a-z_]*)(?:\.md)?#([^)]+)\)", text):
            anchors = {slug(line) for line in headings(PAGES[target or name])}
            assert anchor in anchors, f"{name} links to {target}#{anchor}"


def slug(heading: str) -> str:
    words = re.sub(r"[^\w\- ]", "", heading.lstrip("#").strip().lower())
    return words.replace(" ", "-")


# -- examples --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """An example, with what stands about it in its first comments."""

    text: str

    def said(self, word: str) -> str | None:
        found = re.search(rf"^# {word}: (.*)$", self.text, re.MULTILINE)
        return None if found is None else found.group(1)

    @property
    def playbook(self) -> str:
        """A whole playbook around the example."""
        keys = yaml.safe_load(self.text)
        if "workflow" in keys:
            return _named(self.text, keys)
        if keys.keys() & {"executor", "keychain", "workbook", "workload", "inputs", "metadata"}:
            return _named(self.text, keys) + "\nworkflow: [{step: s, tool: {kind: noop}}]\n"
        step = "- step: s\n" + indent(self.text, "  ")
        step += "" if "tool" in keys or "next" in keys else "  tool: {kind: noop}\n"
        others = "- {step: ship, tool: {kind: noop}}\n" if "next" in keys else ""
        secrets = "".join(f"- {{name: {name}, kind: static, value: x}}\n" for name in ("api", "db"))
        return f"metadata: {{name: x}}\nkeychain:\n{secrets}workflow:\n{step}{others}"


def _named(text: str, keys: dict[str, Any]) -> str:
    return text if "metadata" in keys else f"metadata: {{name: x}}\n{text}"


def blocks(text: str) -> Iterator[Block]:
    for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL):
        yield Block(block)


EVERY = [
    pytest.param(block, id=f"{name}-{number}")
    for name, text in {**PAGES, "index": INDEX.read_text(encoding="utf-8")}.items()
    for number, block in enumerate(blocks(text), 1)
]


@pytest.mark.parametrize("block", EVERY)
def test_every_example_gives_what_the_page_says(block: Block) -> None:
    compiled = compile_source(block.playbook)
    assert compiled.errors == ()
    for severity in ("warning", "note"):
        expected = (block.said(f"{severity}s") or "").split(", ")
        found = [problem.code for problem in compiled.problems if problem.severity == severity]
        assert sorted(found) == sorted(filter(None, expected)), compiled.problems
    given = block.said("gives")
    if given is not None:
        assert outcome_of(block) == json.loads(given)


def outcome_of(block: Block) -> Any:
    """What it comes to in a play; in an engine where it reads what the engine keeps."""
    workload = json.loads(block.said("given") or "{}")
    if "kind: artifact" in block.text:
        ran = anabranch.run(block.playbook, workload)
        assert ran.status == "completed", ran.problem
        return ran.result
    played = play(block.playbook, workload)
    assert played.unscripted == []
    return played.result


def test_every_whole_playbook_that_needs_no_script_says_what_it_gives_or_ends_well() -> None:
    whole = [
        block for page in PAGES.values() for block in blocks(page) if "workflow:" in block.text
    ]
    quiet = [block for block in whole if block.said("gives") is None]
    assert len(quiet) > 3
    for block in quiet:
        played = play(block.playbook, json.loads(block.said("given") or "{}"))
        assert played.unscripted or played.status == "completed", (block.text, played.problem)


def test_every_page_begins_with_an_example_that_runs() -> None:
    for name in sorted(PAGES.keys() - {"problems", "kinds", "keychain"}):
        assert next(blocks(PAGES[name])).said("gives") is not None, name


# -- the folder of examples ------------------------------------------------------------------


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_compile_without_any_problem(path: Path) -> None:
    compiled = load(path)
    assert compiled.problems == ()
    assert compiled.net is not None
    assert compiled.net.name == path.stem
    for draw in (mermaid, dot, svg):
        assert compiled.net.entry in draw(compiled.net)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6
    assert all(path.read_text().startswith("#") for path in EXAMPLES)
