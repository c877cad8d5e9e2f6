"""Templates that are evaluated without Jinja say what they say with it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product
from types import MappingProxyType
from typing import Any

import pytest

from anabranch.errors import ExpressionError
from anabranch.expressions.jinja.jinja import ConditionTemplate, TextTemplate, ValueTemplate
from anabranch.expressions.jinja.limits import TemplateLimits
from anabranch.expressions.jinja.plain import PlainTemplate, plain_template
from anabranch.expressions.jinja.program import compiled
from anabranch.expressions.jinja.template import Mode, Template
from anabranch.expressions.port import Envelope
from seeds import seeds


class Wrapped(dict[str, Any], Envelope):
    """What a dialect puts around the result of a step."""

    @property
    def whole(self) -> Any:
        return "all of it"


LIMITS = TemplateLimits(text_max=60)
PIECES = (
    *("{{", "}}", "{{ ", " }}", "{", "}", "{%", "%}", "{#", "#}", "-", "+", "\n", "\r", " ", "\t"),
    *("a", "b", "_c", "__d", "items", "output", "loop", "self", "result", "range", "true", "none"),
    *("not", "if", "in", ".", ".", "..", "0", "é", "Hello", "[", "]", "(", ")", "| int", "'x'"),
)
PATHS = (
    *("a", "a.b", "a.b._c", "a.items", "a.items.b", "output", "output.b", "b", "b.a", "missing"),
    *("missing.a", "a.missing.b", "loop", "result.a", "range", "a.in", "true", "None", "a.__d"),
)
AROUND = ("", "", " ", "\n", "Hello ", "}", "{ ", "[", ", ", "]", '"', "true", "\n  ", "é", "12")
VALUES: tuple[Any, ...] = (
    *("text", "", " ", "true", "[1]", 0, 7, -1, 2**63, 2**9000, 1.5, float("inf"), True, None),
    *([], [1, "x"], {"b": 1}, {"b": {"_c": "deep"}}, {"items": {"b": 2}}, {"in": 3}, (1, 2)),
    *(
        {1: 2},
        {"b": (1,)},
        MappingProxyType({"b": "seen"}),
        Wrapped(b=[1]),
        "x" * 50,
    ),
)
MODES: tuple[Mode, ...] = ("value", "text", "command", "bare")


def outcome(template: Template, names: Mapping[str, Any], kind: type, lenient: bool) -> Any:
    expression = kind(template, lambda given: given, lenient=lenient)
    try:
        value = expression.evaluate(names)
    except ExpressionError as error:
        return "error", str(error)
    return type(value), repr(value)


def facts(template: Template) -> dict[str, Any]:
    names = ("text", "native", "lookup", "coerces", "names", "readings", "reads")
    return {name: getattr(template, name) for name in names}


def compare(text: str, mode: Mode, worlds: list[dict[str, Any]]) -> PlainTemplate | None:
    plain = plain_template(text, mode, LIMITS)
    if plain is None:
        return None
    whole = compiled(text, mode, LIMITS)  # it never refuses what is plain
    assert facts(plain) == facts(whole)
    kinds: dict[Mode, list[type]] = {
        "value": [ValueTemplate, ConditionTemplate],
        "text": [TextTemplate],
        "command": [TextTemplate],
        "bare": [ConditionTemplate],
    }
    for names in worlds:
        for kind, lenient in product(kinds[mode], (False, True)):
            said = outcome(plain, names, kind, lenient)
            assert said == outcome(whole, names, kind, lenient), (text, names, lenient)
    return plain


def some_names(chance: random.Random) -> list[dict[str, Any]]:
    roots = ("a", "b", "output", "result", "loop", "missing")
    return [
        {root: chance.choice(VALUES) for root in roots if chance.random() < 0.8} for _ in range(4)
    ]


@pytest.mark.parametrize("seed", seeds(200, least=20))
def test_a_plain_template_says_what_jinja_says(seed: int) -> None:
    chance = random.Random(seed)
    plain = 0
    for _ in range(40):
        text = chance.choice(AROUND)
        for _ in range(chance.randint(1, 3)):
            blank = chance.choice(("", " ", "\t "))
            text += "{{" + blank + chance.choice(PATHS) + blank + "}}" + chance.choice(AROUND)
        for mode in ("value", "text", "command"):
            plain += compare(text, mode, some_names(chance)) is not None
        plain += compare(chance.choice(PATHS), "bare", some_names(chance)) is not None
    assert plain > 20  # or the test compares nothing


@pytest.mark.parametrize("seed", seeds(200, least=20))
def test_what_looks_plain_to_us_looks_the_same_to_jinja(seed: int) -> None:
    """Random words: `compare` fails where Jinja takes one for something else, or refuses it."""
    chance = random.Random(seed)
    for _ in range(400):
        text = "".join(chance.choices(PIECES, k=chance.randint(1, 9)))
        for mode in MODES:
            compare(text, mode, [])


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_every_kind_of_value_leaves_a_lookup_as_by_jinja(value: Any) -> None:
    for text in ("{{ a }}", "{{ a.b }}", "[{{ a }}]", "{{ a }} and {{ a.b }}"):
        for mode in ("value", "text", "command"):
            assert compare(text, mode, [{"a": value}, {"a": {"b": value}}]) is not None


MORE = (
    *("{{ loop }}", "{{ output }}", "{{ self.a }}", "{{ range }}", "{{ a.__class__ }}", "{{{ a }}"),
    *("{{ a | int }}", "{{ a[0] }}", "{{- a }}", "{{ a }}{% if b %}{% endif %}", "{{ true }}"),
    *("{{ result.a }}", "{{ a\n}}", "{{ a }}\r\n", "{# a #}{{ a }}", "text"),
)


@pytest.mark.parametrize("text", MORE)
def test_whatever_is_more_than_text_and_lookups_is_left_to_jinja(text: str) -> None:
    assert plain_template(text, "value", LIMITS) is None
