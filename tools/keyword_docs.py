"""What the documentation says about each keyword, for the JSON Schemas of the languages.

    python tools/keyword_docs.py        # writes src/anabranch/dialects/keyword_docs.json again

The pages are the source: a keyword is described by the first paragraph below its heading, or by
the last cell of its row in a table. Which keywords are wanted is asked of the schemas themselves.
A test compares the file with the pages, so a page that changed needs this once more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from anabranch.dialects import schema

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FILE = schema.DOCS


class Source(NamedTuple):
    """Where the keywords of a place are described: a page, and the section or table of it."""

    page: str
    within: str = ""  # a part of the heading, or of the first cell of a table
    of: str = ""  # `attempts` of `retry`: which of several with one name


_PLAYBOOK = {
    "playbook": Source("document", "Keys of the root"),
    "metadata": Source("document", "Keys of the root"),
    "input": Source("document", "key of an input"),
    "workbook": Source("document"),
    "schedule": Source("../schedules", "When"),
    "keychain entry": Source("keychain", "Keys of every entry"),
    "executor": Source("executor", "Keys of `executor`"),
    "executor.spec": Source("executor", "How a run begins"),
    "executor.spec.policy": Source("executor", "Defaults"),
    "executor.spec.policy.defaults": Source("executor", "Defaults", "defaults"),
    "executor.spec.http": Source("executor", "Defaults", "http"),
    "step": Source("step", "Keys of a step"),
    "step.spec": Source("step", "Keys of `spec`", "spec"),
    "step.spec.retry": Source("step", "Keys of `spec`", "retry"),
    "step.spec.policy": Source("step", "Keys of `spec`"),
    "step.spec.policy.lifecycle": Source("step", "Keys of `spec`", "lifecycle"),
    "step.spec.policy.failure": Source("step", "Keys of `spec`", "failure"),
    "admit": Source("admission"),
    "admit.rule": Source("admission"),
    "admit.rule.then": Source("admission"),
    "next": Source("routing", "Keys of `next`"),
    "next.spec": Source("routing", "Keys of `next`"),
    "arc": Source("routing", "Keys of an arc", "arc"),
    "loop": Source("loops", "Keys of `loop`"),
    "loop.spec": Source("loops", "Keys of `loop.spec`"),
    "loop.spec.policy": Source("loops", "Keys of `loop.spec`"),
    "collections": Source("loops", "Collections"),
    "fanout": Source("fanout"),
    "task": Source("tool", "Keys every task has"),
    "task.spec": Source("tool", "Keys of `spec`", "spec"),
    "task.timeout": Source("tool"),
    "task.retry": Source("tool", "", "retry"),
    "task.retry.entry": Source("tool", "", "retry"),
    "task.policy": Source("rules", "Keys of `policy`"),
    "rule": Source("rules", "Keys of a rule"),
    "then": Source("rules", "Keys of `then`"),
    "result": Source("results"),
    "result.store": Source("results"),
    "result.accumulate": Source("results"),
}
SOURCES: dict[str, dict[str, Source]] = {
    "noetl": {
        place: source._replace(page=f"playbook/{source.page}")
        for place, source in _PLAYBOOK.items()
    },
    "arca": {
        "definition": Source("solicit", "The definition"),
        "template": Source("solicit", "key of a template"),
        "step": Source("solicit", "A step"),
        "target": Source("solicit", "key of a target"),
        "fan_in": Source("solicit", "key of a fan_in"),
        "timing": Source("solicit", "timing"),
        "timing.retry": Source("solicit", "timing", "retry"),
        "fulfillment": Source("solicit", "fulfillment"),
        "decision_source": Source("solicit", "fulfillment", "decision_source"),
        "result_match": Source("solicit", "fulfillment", "result_match"),
    },
    "xrc729": {
        "orchestration": Source("orchestrations", "The document"),
        "step": Source("orchestrations", "The document", "step"),
        "branch": Source("orchestrations", "The document", "branch"),
        "join": Source("orchestrations", "key of a join"),
        "join.from": Source("orchestrations", "key of an entry"),
        "bundle": Source("orchestrations", "key of a bundle"),
        "builder": Source("orchestrations", "key of the builder"),
    },
    "xrc137": {
        "rule": Source("rules", "key of a rule document"),
        "input": Source("rules", "key of an input"),
        "value": Source("rules", "key of an input"),
        "extract": Source("rules", "key of an extract"),
        "contract_read": Source("rules", "key of a read"),
        "saved": Source("rules", "key of a saved value"),
        "api_call": Source("rules", "key of a call"),
        "condition": Source("rules", "key of a condition"),
        "branch": Source("rules", "Branches"),
        "execution": Source("rules", "key of an execution"),
        "gas": Source("rules", "key of an execution"),
        "wake_up": Source("rules", "key of a wake-up"),
        "grant": Source("rules", "key of a wake-up"),
    },
}

SOURCES["noetl"]["schedule"] = Source("schedules")
SOURCES["noetl"]["concurrency"] = Source("limits", "Concurrency")


class Entry(NamedTuple):
    """One description of a keyword on a page."""

    key: str
    of: str  # what it is said to belong to
    within: tuple[str, ...]  # the headings around it, and the head of its table
    text: str
    row: bool = False


# -- reading a page --------------------------------------------------------------------------


@cache
def entries(page: str) -> list[Entry]:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    lines = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S).splitlines()
    return list(_entries(lines))


def _entries(lines: list[str]) -> Iterator[Entry]:
    chapter, heading, head = "", "", ""
    for number, line in enumerate(lines):
        if line.startswith("## "):
            chapter, heading = line[3:], ""
        if line.startswith("### "):
            heading = line[4:]
            yield from _below_heading(lines, number, chapter)
        if line.startswith("|---"):
            head = lines[number - 1].strip("| ").partition("|")[0]
        elif line.startswith("| ") and head:
            yield from _row(line, (chapter, heading, head))
        elif not line.startswith("|"):
            head = ""


def _below_heading(lines: list[str], number: int, chapter: str) -> Iterator[Entry]:
    heading = lines[number][4:]
    paragraph = []
    for line in lines[number + 2 :]:
        if not line.strip() or line.startswith(("#", "|")):
            break
        paragraph.append(line)
    text = _plain(" ".join(paragraph))
    named, _, owner = heading.partition(" of ")
    said = re.match(r"Of `([\w.]+)`(?:, [^:]*)?: ", text)
    of = owner.strip("`").removeprefix("a ").removeprefix("an ") or (said[1] if said else "")
    text = text[said.end() :] if said else text
    for key in re.findall(r"`([^`]+)`", named) if text else ():
        yield Entry(key, of, (chapter,), _sentence(text))


def _row(line: str, within: tuple[str, ...]) -> Iterator[Entry]:
    cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("| "))]
    text = next((_plain(cell) for cell in reversed(cells[1:]) if cell), "")
    if within[-1].startswith(("key of a join", "key of an entry")):  # the last cell is the default
        text = _plain(cells[1])
    named, _, owner = cells[0].partition(" of ")
    for key in re.findall(r"`([^`]+)`", named) if text else ():
        prefix, _, last = key.rpartition(".")
        of = prefix or owner.removeprefix("a ").strip("`")
        yield Entry(last, of, within, _sentence(text), row=True)


def _plain(text: str) -> str:
    """Without links and emphasis, which an editor does not show."""
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\*\*?([^*]+)\*\*?", r"\1", text)
    return re.sub(r"^Ours\. ", "", text.replace("\\|", "|")).strip()


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text[-1:] in ".:;!?" else f"{text}."


# -- what is wanted --------------------------------------------------------------------------


def describe(language: str, places: tuple[str, ...], key: str) -> tuple[str, str]:
    """The place whose page describes the key, and what it says; empty where none does."""
    for place in places:
        found = _best(_source(language, place), key)
        if found:
            return place, found
    return places[0], ""


def _source(language: str, place: str) -> Source:
    if place.startswith("kind "):
        return Source("playbook/kinds", f"`{place.removeprefix('kind ')}`")
    return SOURCES[language][place]


def _best(source: Source, key: str) -> str:
    """The one in the right section, of the right owner; a heading before a row."""
    found = [entry for entry in entries(source.page) if entry.key == key]
    inside = [entry for entry in found if any(source.within in each for each in entry.within)]
    if source.page == "playbook/kinds" or source.page.startswith(("solicit", "orch", "rules")):
        found = inside
    ranked = sorted(found, key=lambda entry: _rank(source, entry, entry in inside))
    return ranked[0].text if ranked else ""


def _rank(source: Source, entry: Entry, inside: bool) -> tuple[bool, bool, bool, bool]:
    owned = entry.of == source.of if source.of else not entry.of
    return not owned, not inside, bool(entry.of) and not owned, entry.row


def written() -> dict[str, dict[str, dict[str, str]]]:
    """The whole file, from the pages as they are now."""
    made: dict[str, dict[str, dict[str, str]]] = {}
    for language, asked, key in schema.wanted():
        place, text = describe(language, asked, key)
        if text:
            made.setdefault(language, {}).setdefault(place, {})[key] = text
    return {
        language: {place: dict(sorted(keys.items())) for place, keys in sorted(places.items())}
        for language, places in made.items()
    }


def main() -> None:
    FILE.write_text(json.dumps(written(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(FILE.relative_to(ROOT))


if __name__ == "__main__":
    main()
