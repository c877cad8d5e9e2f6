"""`min_score` and `max_score`: answers whose number lies outside cannot be used.

A bound is a number, or a reference to one (`"{{input.budget}}"`), looked up when an answer is
judged. What was decided is recorded with the answer, so nothing is looked up twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import plain
from anabranch.errors import ExpressionError
from anabranch.expressions.pointer import Path
from anabranch.expressions.port import Paths
from anabranch.expressions.references import (
    Reference,
    References,
    compile_references,
    document_of,
)

KEYS = ("min_score", "max_score")
NO_SCORE = "no score"


class Bounds(msgspec.Struct, frozen=True):
    """Why an answer is out of bounds, or an empty text."""

    score: Path
    given: References  # a mapping of one or both keys

    @property
    def text(self) -> str:
        return f"{self.score.text} within {self.given.text}"

    @property
    def reads(self) -> Paths:
        return self.given.reads

    def references(self) -> Iterator[Reference]:
        yield from self.given.references()

    def evaluate(self, names: Mapping[str, Any]) -> str:
        score = self.score.find(names["answer"])
        if not _is_number(score):
            return NO_SCORE
        bounds = self.given.render(document_of(names))
        for key, bound in bounds.items():
            if not _is_number(bound):
                raise ExpressionError(f"`{key}` comes to {bound!r:.40}, which is no number")
        least, most = (bounds.get(key) for key in KEYS)
        if least is not None and score < least:
            return f"score {score:g} is below min_score {least:g}"
        if most is not None and score > most:
            return f"score {score:g} is above max_score {most:g}"
        return ""


def read_bounds(section: Section, score: Path | None) -> Bounds | None:
    given = {key: plain(node) for key in KEYS if (node := section.ask(key)) is not None}
    for key, value in given.items():
        if not _is_number(value) and not _is_reference(value):
            expected = 'a number or a reference such as "{{input.budget}}"'
            section.findings.wrong_type(
                section.node.fields[key], f"`{key}` of {section.what}", expected
            )
            return None
    least, most = (given[key] if _is_number(given.get(key)) else None for key in KEYS)
    if least is not None and most is not None and least > most:
        message = f"`min_score` {least:g} is above `max_score` {most:g}: no answer can be used"
        at = section.key_position("min_score")
        section.findings.add(at, "conflicting-keys", message, "exchange them")
        return None
    if not given or score is None:
        return None
    return Bounds(score, compile_references(given))


def _is_reference(value: Any) -> bool:
    """One that is the whole value, so that a number stays one."""
    if not isinstance(value, str | Mapping):
        return False
    try:
        found = list(compile_references(value).references())
    except ExpressionError:
        return False
    whole = isinstance(value, Mapping) or value.strip() == found[0].text if found else False
    return len(found) == 1 and whole


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False
