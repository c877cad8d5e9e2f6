"""What the readers ask for, key by key, as documents in which one place is changed.

The readers of all languages take a mapping apart by asking a `Section`. While a definition is
compiled, each question is noted with the place it is about. Then every answer that the question can
tell apart is put there: what fits, what does not, nothing. Whatever the reader says of such a
document, the schema must not be stricter, and where the reader complains of the answer itself, the
schema has to complain too. A key that a reader learns to ask for is so in the schema, or a test
fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any, NamedTuple
from unittest import mock

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import Fields, Items, Node
from anabranch.dialects.registry import compile_source
from anabranch.dialects.source import Document, read_source
from anabranch.net.problems import Position

from .schema_cases import Definition

Path = tuple[str | int, ...]
UNKNOWN = "zz-no-such-key"
NOT_A_WORD = "no such word"


class Question(NamedTuple):
    """What was asked of one mapping of the document."""

    place: str  # as a message calls it, without names and numbers
    at: Position
    key: str
    fits: tuple[Any, ...] = ()
    fails: tuple[Any, ...] = ()


class Probe(NamedTuple):
    """A document with one answer changed."""

    place: str
    key: str
    answer: Any
    document: dict[str, Any]
    fails: bool  # the reader complains of the answer


def probes(definition: Definition, seen: set[tuple[str, str]]) -> Iterator[Probe]:
    """Those of one definition, for keys of places that were not seen yet."""
    text = json.dumps(definition.document)
    asked = _asked(text)
    places = _places(read_source(text, file="x.json"))
    for question in asked:
        path = places.get(question.at)
        if path is None or (question.place, question.key) in seen:
            continue
        seen.add((question.place, question.key))
        for answer in (*question.fits, None):
            yield _probe(definition, question, path, answer, fails=False)
        for answer in question.fails:
            yield _probe(definition, question, path, answer, fails=True)


def _probe(
    definition: Definition, question: Question, path: Path, answer: Any, *, fails: bool
) -> Probe:
    document = deepcopy(definition.document)
    place: Any = document
    for step in path:
        place = place[step]
    place[question.key] = answer
    return Probe(question.place, question.key, answer, document, fails)


def _places(document: Document) -> dict[Position, Path]:
    """Where each mapping of the document stands."""
    found: dict[Position, Path] = {}

    def walk(node: Node | None, path: Path) -> None:
        if isinstance(node, Fields):
            found.setdefault(node.position, path)
            for key, inner in node.fields.items():
                walk(inner, (*path, key))
        elif isinstance(node, Items):
            for number, inner in enumerate(node):
                walk(inner, (*path, number))

    walk(document.root, ())
    return found


# -- noting what is asked --------------------------------------------------------------------


def _asked(text: str) -> list[Question]:
    found: list[Question] = []

    def note(
        section: Section, key: str, fits: Iterable[Any] = (), fails: Iterable[Any] = ()
    ) -> None:
        place = re.sub(r"'[^']*'|\d+", "…", section.what)
        found.append(Question(place, section.position, key, tuple(fits), tuple(fails)))

    patches = _patches(note)
    with mock.patch.multiple(Section, **patches):
        compile_source(text, file="x.json", any_tool=True)
    # A key is also asked for plainly by what reads it: what says more about it goes first.
    return sorted(found, key=lambda question: not (question.fits or question.fails))


def _patches(note: Callable[..., None]) -> dict[str, Any]:
    ask, flag, whole, number = Section.ask, Section.flag, Section.whole, Section.number
    choice, duration, finish = Section.choice, Section.duration_of, Section.finish

    def asking(self: Section, key: str) -> Any:
        note(self, key)
        return ask(self, key)

    def flagging(self: Section, key: str, default: bool = False) -> bool:
        note(self, key, (True, False), (NOT_A_WORD,))
        return flag(self, key, default)

    def counting(self: Section, key: str, default: int, *, least: int, most: int) -> int:
        note(self, key, (least, most), (least - 1, most + 1))
        return whole(self, key, default, least=least, most=most)

    def measuring(self: Section, key: str, default: float, *, least: float, most: float) -> float:
        note(self, key, (least, most), (least - 1, most + 1))
        return number(self, key, default, least=least, most=most)

    def choosing(self: Section, key: str, words: Sequence[Any], default: Any) -> Any:
        note(self, key, words, (NOT_A_WORD,))
        return choice(self, key, words, default)

    def timing(self: Section, key: str, node: Node, *, zero: bool = False) -> int | None:
        note(self, key, ("PT5S",), ("soon",))
        return duration(self, key, node, zero=zero)

    def finishing(
        self: Section, also: Iterable[str] = (), *, free: Collection[str] | None = None
    ) -> None:
        also = tuple(also)
        for key in also:
            note(self, key)
        if free is None:
            note(self, UNKNOWN, (), (1,))
        finish(self, also, free=free)

    return {
        "ask": asking,
        "flag": flagging,
        "whole": counting,
        "number": measuring,
        "choice": choosing,
        "duration_of": timing,
        "finish": finishing,
    }
