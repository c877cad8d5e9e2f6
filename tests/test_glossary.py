"""The glossary of docs/concepts.md and the names in the code use the same words.

A class that another package imports is read by people who do not know where it lives. Each word
of its name is either plain English of this field, listed below, or explained in the glossary.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "anabranch"
ROOMS = ("kernel", "net", "runtime", "operations", "work")

#: Words of class names that need no explanation here. A new one belongs into the glossary if it
#: means more than a dictionary of programming says, and into this list if it does not.
PLAIN = """
    access address admit again ahead aliases api ask audit available bad batch beat bulk call
    card chain change check concurrency control counter data detail durable elsewhere error
    example execute exported extra fail failure field file filter follow guess health here histogram
    hold http imported inner input iteration json kept key known lag large lazy leave light
    limit line live load log mail match method name need next noop not offload one or overview
    overviews owner page path patience place plan policy position prepare purge query queue rate
    read ready record redactor referred refuse register registry replied reply report request
    result retention retry right rpc scheduling secret security seek seen send sent server service
    setting shown source spec stop target template text thread time to too underway unfinished
    unsealed version view work write wrong
"""


def plain() -> frozenset[str]:
    return frozenset(PLAIN.split())


@cache
def texts() -> dict[str, str]:
    return {
        path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(SOURCE.rglob("*.py"))
    }


def room_of(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


def words_in(name: str) -> list[str]:
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def glossary() -> list[str]:
    page = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    section = page.partition("\n## Glossary\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| \*\*([a-z]+)\*\* \| \S", section, re.MULTILINE)


@cache
def shared_classes() -> frozenset[str]:
    """Classes of these rooms that a module of another room imports."""
    shared = {
        (room, name)
        for file, text in texts().items()
        for room, names in re.findall(
            r"^ *from anabranch\.(\w+)[\w.]* import (\([^)]*\)|.*)", text, re.MULTILINE
        )
        if room != room_of(file)
        for name in re.findall(r"\w+", names)
    }
    return frozenset(
        name
        for file, text in texts().items()
        if room_of(file) in ROOMS
        for name in re.findall(r"^class ([A-Z]\w*)", text, re.MULTILINE)
        if (room_of(file), name) in shared
    )


def is_known(word: str, words: frozenset[str]) -> bool:
    """A plural or a participle is known by its stem: tokens, parked, cutting."""
    stems = {word, *(word.removesuffix(end) for end in ("s", "es", "ed", "d", "ing", "er", "r"))}
    return not words.isdisjoint(stems)


def test_every_word_of_a_class_that_packages_share_is_explained() -> None:
    assert len(shared_classes()) > 100  # they were found
    words = plain() | frozenset(glossary())
    unexplained = {
        word: name
        for name in shared_classes()
        for word in words_in(name)
        if not is_known(word, words)
    }
    assert not unexplained, "explain these in the glossary of docs/concepts.md, or rename the class"


def test_every_word_of_the_glossary_is_used_in_the_code() -> None:
    names = {
        name
        for file, text in texts().items()
        for name in [file, *re.findall(r"^ *(?:class|def|async def) (\w+)", text, re.MULTILINE)]
    }
    used = {word for name in names for word in words_in(name)}
    found = {word.removesuffix("s") for word in used} | used
    assert [word for word in glossary() if word not in found] == []


def test_the_glossary_is_alphabetical_and_explains_no_plain_word() -> None:
    words = glossary()
    assert len(words) > 50  # the table was found
    assert words == sorted(set(words))
    assert PLAIN.split() == sorted(set(PLAIN.split()))
    assert plain().isdisjoint(words)


def test_the_list_of_plain_words_holds_no_word_that_has_gone() -> None:
    used = {word for name in shared_classes() for word in words_in(name)}
    gone = sorted(
        word for word in plain() if not any(is_known(each, frozenset({word})) for each in used)
    )
    assert gone == []
