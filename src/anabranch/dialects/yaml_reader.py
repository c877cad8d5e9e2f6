"""YAML with the place of every key and value, composed from the parser's events.

PyYAML's own composer is left out because it follows aliases and nesting without a limit. Aliases
share the node they stand for; its size counts again each time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite
from typing import Any

import msgspec
import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from anabranch.dialects.nodes import Fields, Items, Node, Scalar, Style
from anabranch.dialects.reading import Reading, StopReading
from anabranch.net.problems import Position

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STYLES: dict[str, Style] = {"|": "literal", ">": "folded", "'": "quoted", '"': "quoted"}
_TAG = "tag:yaml.org,2002:"


def read_yaml(text: str, reading: Reading, loader: Any = None) -> Node | None:
    odd = _UNPRINTABLE.search(text)
    if odd is not None:
        _report_character(text, odd.start(), reading)
        return None
    try:
        return _Composer(yaml.parse(text, Loader=loader or LOADER), reading).document()
    except StopReading:
        return None
    except yaml.MarkedYAMLError as error:
        _report(error, text, reading)
        return None


def _report_character(text: str, index: int, reading: Reading) -> None:
    line = text.count("\n", 0, index) + 1
    column = index - text.rfind("\n", 0, index)
    message = f"the character U+{ord(text[index]):04X} is not allowed in YAML"
    reading.syntax_error = True
    reading.problem(line, column, "bad-character", message, "remove it or write it as an escape")


def _report(error: yaml.MarkedYAMLError, text: str, reading: Reading) -> None:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    lines = text.split("\n")
    if line > len(lines):  # the parser counts a line behind the last one
        line, column = len(lines), len(lines[-1]) + 1
    message = error.problem or "this is not YAML"
    context = f" ({error.context})" if error.context else ""
    reading.stop(line, column, f"{message}{context}", _hint(message, lines[line - 1]))


def _hint(message: str, source: str) -> str:
    if "\t" in source[: len(source) - len(source.lstrip())]:
        return "indent with spaces, not tabs"
    if "mapping values are not allowed" in message:
        return "put the text in quotes, or check the indentation"
    if "cannot start any token" in message:
        return "put the text in quotes"
    return "check the quotes, brackets and indentation around here"


class _Built(msgspec.Struct, frozen=True):
    """A node with its size and height, aliases written out."""

    node: Node
    size: int = 1
    height: int = 0


class _Composer:
    def __init__(self, events: Iterator[Any], reading: Reading) -> None:
        self._events = events
        self._reading = reading
        self._anchors: dict[str, _Built | None] = {}  # None while the node is being read
        self._values = 0

    def document(self) -> Node | None:
        root: Node | None = None
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                if root is not None:
                    self._problem(event, "several-documents", "a second document starts here")
                    return root
                root = self._built(next(self._events), 0).node
            elif isinstance(event, StreamEndEvent):
                break
        if isinstance(root, Scalar) and root.value is None:
            return None
        return root

    def _built(self, event: Any, depth: int) -> _Built:
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        self._reading.check_depth(depth, line, column)
        if isinstance(event, AliasEvent):
            return self._alias(event, depth)
        anchor: str | None = event.anchor
        if anchor is not None:
            self._anchors[anchor] = None
        built = self._collection(event, depth)
        self._count(1, line, column)
        if anchor is not None:
            self._anchors[anchor] = built
        return built

    def _collection(self, event: Any, depth: int) -> _Built:
        match event:
            case ScalarEvent():
                return _Built(self._scalar(event))
            case SequenceStartEvent():
                self._check_tag(event, "seq")
                return self._items(event, depth)
            case _:
                self._check_tag(event, "map")
                return self._fields(event, depth)

    def _alias(self, event: Any, depth: int) -> _Built:
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        built = self._anchors.get(event.anchor)
        if built is None:
            within = event.anchor in self._anchors
            what = "contains itself" if within else "is not defined above"
            self._problem(event, "bad-alias", f"the alias *{event.anchor} {what}")
            return _Built(Scalar(None, self._at(event)))
        self._count(built.size, line, column)
        self._reading.check_depth(depth + built.height, line, column)
        return built

    def _count(self, size: int, line: int, column: int) -> None:
        self._values += size
        self._reading.check_values(self._values, line, column)

    # -- collections -------------------------------------------------------------------------

    def _items(self, start: Any, depth: int) -> _Built:
        parts: list[_Built] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            parts.append(self._built(event, depth + 1))
        return _sized(Items(tuple(part.node for part in parts), self._at(start)), parts)

    def _fields(self, start: MappingStartEvent, depth: int) -> _Built:
        fields: dict[str, Node] = {}
        keys: dict[str, Position] = {}
        merged: list[Fields] = []
        parts: list[_Built] = []
        while not isinstance(event := next(self._events), MappingEndEvent):
            key = self._key(event, depth)
            value = self._built(next(self._events), depth + 1)
            parts.append(value)
            if key == "<<" and _is_plain(event):
                merged.extend(self._merged(event, value.node))
            elif key is not None and key in keys:
                where = f"(first in line {keys[key].line})"
                message = f"the key {key!r} stands here again {where}"
                self._problem(event, "duplicate-key", message, "remove one of them")
            elif key is not None:
                fields[key], keys[key] = value.node, self._at(event)
        for other in merged:
            for key, node in other.fields.items():
                if key not in fields:
                    fields[key], keys[key] = node, other.keys[key]
        return _sized(Fields(fields, keys, self._at(start)), parts)

    def _key(self, event: Any, depth: int) -> str | None:
        """A key as text. Words such as `on` stay the word; numbers and structures are refused."""
        node = self._built(event, depth + 1).node
        if isinstance(node, Scalar):
            if isinstance(node.value, str):
                return node.value
            if isinstance(node.value, bool) and isinstance(event, ScalarEvent):
                return str(event.value)
        if isinstance(event, ScalarEvent):
            self._problem(event, "bad-key", f"the key {event.value!r} is not text", "quote it")
        else:
            hint = 'if this is a template, put it in quotes: "{{ … }}"'
            self._problem(event, "bad-key", "a structure cannot be a key", hint)
        return None

    def _merged(self, event: Any, node: Node) -> list[Fields]:
        nodes = list(node) if isinstance(node, Items) else [node]
        if not all(isinstance(each, Fields) for each in nodes):
            self._problem(event, "bad-merge", "`<<` takes a mapping or a list of mappings")
        return [each for each in nodes if isinstance(each, Fields)]

    # -- scalars -----------------------------------------------------------------------------

    def _scalar(self, event: ScalarEvent) -> Scalar:
        style = _STYLES.get(event.style or "", "plain")
        text: str = event.value
        kind = "" if event.tag in (None, "!") else str(event.tag).removeprefix(_TAG)
        if kind not in ("", "str", "int", "float", "bool", "null"):
            self._problem(event, "unknown-tag", f"the tag {event.tag!r} is not known", "remove it")
        reads = kind in ("int", "float", "bool", "null") or (not kind and _is_plain(event))
        value = self._resolved(text, event) if reads else text
        if kind == "float" and type(value) is int:
            value = float(value)
        if kind in _TYPES and type(value) is not _TYPES[kind]:
            self._problem(event, "bad-value", f"{text!r} is not of the type !!{kind}")
        return Scalar(value, self._at(event), style)

    def _resolved(self, text: str, event: ScalarEvent) -> Any:
        try:
            return resolve(text)
        except ValueError as error:
            self._problem(event, "bad-value", str(error), "put it in quotes to keep it as text")
            return text

    def _check_tag(self, event: Any, expected: str) -> None:
        if event.tag not in (None, "!", _TAG + expected):
            self._problem(event, "unknown-tag", f"the tag {event.tag!r} is not known", "remove it")

    # -- places ------------------------------------------------------------------------------

    def _at(self, event: Any) -> Position:
        return self._reading.at(event.start_mark.line + 1, event.start_mark.column + 1)

    def _problem(self, event: Any, code: str, message: str, hint: str = "") -> None:
        mark = event.start_mark
        self._reading.problem(mark.line + 1, mark.column + 1, code, message, hint)


def _sized(node: Node, parts: list[_Built]) -> _Built:
    height = max((part.height for part in parts), default=-1) + 1
    return _Built(node, 1 + sum(part.size for part in parts), height)


def _is_plain(event: Any) -> bool:
    # The C parser says '' where the other one says None.
    return isinstance(event, ScalarEvent) and not event.style and event.tag is None


# -- plain words -----------------------------------------------------------------------------

_TYPES: dict[str, type] = {"int": int, "float": float, "bool": bool, "null": type(None)}
_TRUE = frozenset({"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})
_FALSE = frozenset({"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_PREFIXED = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_DECIMAL = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def resolve(text: str) -> Any:
    """The value an unquoted word stands for. Raises ValueError for numbers JSON cannot hold."""
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if text[0] not in "+-.0123456789":
        return text
    if _WHOLE.fullmatch(text):
        return _whole(text, 10)
    if _PREFIXED.fullmatch(text):
        return _whole(text, 0)
    if _DECIMAL.fullmatch(text):
        return _finite(float(text), text)
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a JSON number")
    return text


def _whole(text: str, base: int) -> int:
    if len(text) > 24 or not -(2**63) <= (number := int(text, base)) < 2**64:
        raise ValueError(f"the whole number {text[:30]} is beyond 64 bits")
    return number


def _finite(number: float, text: str) -> float:
    if not isfinite(number):
        raise ValueError(f"the number {text} is too large")
    return number
