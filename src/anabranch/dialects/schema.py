"""JSON Schema (2020-12) of the definition languages: the shapes that their schemas are made of.

The schema of a language stands beside its reader and takes words, kinds and limits from the same
tables. It says of a document what can be said of one place alone; references between places, and
templates, are left to `check`. Where the reader takes a definition, the schema does too: also an
empty value (`key:`) for every key that may be left out, and older spellings, marked as deprecated.

Only keywords that editors have known for long are used: `if`, `then`, `else` and
`additionalProperties`, and no `unevaluatedProperties`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from anabranch.dialects.durations import ISO_PATTERN, PATTERN
from anabranch.dialects.port import ToolSignature
from anabranch.version import __version__

Schema = dict[str, Any]
Properties = Mapping[str, Schema]

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
#: Each language by the name of its dialect, or of the part of it: where its schema is made.
LANGUAGES: Final = ("noetl", "xrc729", "xrc137", "arca")
#: A template somewhere in a text.
TEMPLATE: Final = r"\{[{%#]"
ANYTHING: Final[Schema] = {}
OLD: Final = "An older spelling: `anabranch fmt` writes it as it is today."
#: What tools write beside a document.
IGNORED: Final[Schema] = {"description": "For tools: it means nothing to a run."}
DOCS: Final = Path(__file__).with_name("keyword_docs.json")


def schema_of(language: str, tools: Iterable[ToolSignature] | None = None) -> Schema:
    """The schema of one of `LANGUAGES`. With `tools` the tasks of playbooks are of the kinds that
    come with Anabranch, or of these; without it any other kind may be that of a tool."""
    module = import_module(f"anabranch.dialects.{language}.schema")
    made: Schema = module.schema() if language != "noetl" else module.schema(tools)
    head = {"$schema": DRAFT, "$comment": f"anabranch {__version__}: anabranch schema {language}"}
    return {**head, **made}


# -- values ----------------------------------------------------------------------------------


def text() -> Schema:
    """Text; a number is taken as the text that it is."""
    return {"type": ["string", "number"]}


def string(pattern: str = "") -> Schema:
    return {"type": "string", "pattern": pattern} if pattern else {"type": "string"}


def flag() -> Schema:
    return {"type": "boolean"}


def whole(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def number(least: float, most: float) -> Schema:
    return {"type": "number", "minimum": least, "maximum": most}


def choice(words: Iterable[str]) -> Schema:
    return {"enum": list(words)}


def template() -> Schema:
    return string(TEMPLATE)


def duration() -> Schema:
    """Seconds, or a text with units."""
    return {"type": ["string", "number"], "minimum": 0, "pattern": f"^(?:{PATTERN})$"}


def iso_duration() -> Schema:
    return string(f"^(?:{ISO_PATTERN})$")


def condition() -> Schema:
    return {"type": ["string", "boolean"]}


def mapping(values: Schema | None = None) -> Schema:
    """Keys are the author's."""
    return {"type": "object", **({"additionalProperties": values} if values else {})}


def listed(items: Schema, *, least: int = 0, most: int | None = None) -> Schema:
    bounds: Schema = {"minItems": least} if least else {}
    if most is not None:
        bounds["maxItems"] = most
    return {"type": "array", "items": items, **bounds}


def ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


# -- put together ----------------------------------------------------------------------------


def either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def when(test: Schema, then: Schema, otherwise: Schema | None = None) -> Schema:
    return {"if": test, "then": then, **({"else": otherwise} if otherwise is not None else {})}


def has(*keys: str) -> Schema:
    """One of these keys is there."""
    return either(*({"required": [key]} for key in keys))


def has_not(*keys: str) -> Schema:
    """None of these keys is there with a value."""
    return {"properties": {key: {"type": "null"} for key in keys}}


def is_word(key: str, *words: str | bool) -> Schema:
    """The key is there and holds one of these."""
    return {"required": [key], "properties": {key: {"enum": list(words)}}}


def one_of_them(keys: Sequence[str]) -> Schema:
    """At most one of these keys is there with a value."""
    pairs = [(a, b) for number, a in enumerate(keys) for b in keys[number + 1 :]]
    return {"allOf": [{"not": {"allOf": [_filled(a), _filled(b)]}} for a, b in pairs]}


def _filled(key: str) -> Schema:
    return {"required": [key], "properties": {key: {"not": {"type": "null"}}}}


def no_slips(known: Iterable[str], besides: Iterable[str] = ()) -> Schema:
    """For `propertyNames` where keys are free: one that is a letter off a known one is a slip of
    the pen, and refused by the readers too. `besides` are words with a meaning of their own."""
    words = list(known)
    slips = "|".join(slip for word in words for slip in _slips(word))
    return either({"enum": sorted({*words, *besides})}, {"not": {"pattern": f"^(?:{slips})$"}})


def _slips(word: str) -> Iterator[str]:
    """Patterns: other cases, and a letter too few, too many or another one. In a short word
    another letter may make another word."""
    letters = [f"[{each}{each.upper()}]" if each.isalpha() else re.escape(each) for each in word]
    yield "".join(letters)
    for number in range(len(letters) + 1):
        before, after = "".join(letters[:number]), letters[number:]
        yield f"{before}.{''.join(after)}"
        if after and len(word) > 4:
            yield f"{before}.?{''.join(after[1:])}"


def section(
    title: str,
    fields: Properties,
    *,
    required: Sequence[str] = (),
    old: Properties | None = None,
    refused: Iterable[str] = (),
    free: bool | Schema = False,
    docs: Said | None = None,
    **more: Any,
) -> Schema:
    """A mapping with known keys. `old` are those that nobody should write any more, `refused` those
    that the readers know only to refuse; `free` says what other keys may hold. Every key that is
    not `required` may be empty."""
    properties: Schema = {}
    for key, value in fields.items():
        shape = value if key in required else nullable(value)
        properties[key] = described(shape, "" if docs is None else docs.get(key))
    for key, value in (old or {}).items():
        about = "" if docs is None else docs.get(key)
        mark = {"deprecated": True, "doNotSuggest": True}
        properties[key] = {**described(nullable(value), about or OLD), **mark}
    for key in refused:
        properties[key] = {"type": "null", "doNotSuggest": True}
    made: Schema = {
        "title": title,
        "type": "object",
        "properties": properties,
        "additionalProperties": free,
    }
    if required:
        made["required"] = list(required)
    return {**made, **more}


def described(schema: Schema, about: str) -> Schema:
    return {**schema, "description": about} if about else dict(schema)


def nullable(schema: Schema) -> Schema:
    """The same, or nothing: a key without a value is one that is not there."""
    if set(schema) <= {"description"} or schema.get("type") == "null":
        return dict(schema)
    if "enum" in schema and "type" not in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if set(schema) & {"anyOf"} == set(schema):
        return {"anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "type" in schema and not {"enum", "if", "anyOf", "allOf"} & set(schema):
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return {**schema, "type": [*types, "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


# -- what the documentation says -------------------------------------------------------------

#: A language, places of which the first that has it describes the key, and the key.
Asked = tuple[str, tuple[str, ...], str]


@cache
def keyword_docs() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Language → place → key → the first paragraph about it; `tools/keyword_docs.py` writes it."""
    found: Mapping[str, Mapping[str, Mapping[str, str]]] = json.loads(DOCS.read_bytes())
    return found


class Docs:
    """What the pages about one language say about its keys."""

    asked: set[Asked] | None = None  # filled while somebody wants to know what is asked for

    def __init__(self, language: str) -> None:
        self._language = language
        self._places = keyword_docs()[language]

    def __call__(self, *places: str) -> Said:
        return Said(self, places)

    def find(self, places: tuple[str, ...], key: str) -> str:
        if Docs.asked is not None:
            Docs.asked.add((self._language, places, key))
        found = (self._places.get(place, {}).get(key, "") for place in places)
        return next(filter(None, found), "")


class Said:
    """The same for one place, or for several that are one after another the more general."""

    def __init__(self, docs: Docs, places: tuple[str, ...]) -> None:
        self._docs, self._places = docs, places

    def get(self, key: str) -> str:
        return self._docs.find(self._places, key)


def wanted() -> list[Asked]:
    """Every key that the schemas want a description of."""
    Docs.asked = set()
    try:
        for language in LANGUAGES:
            schema_of(language)
        return sorted(Docs.asked)
    finally:
        Docs.asked = None
