"""YAML with the place of every key and value, composed from the parser's events.

PyYAML's own composer is left out because it follows aliases and nesting without a limit. Aliases
share the node they stand for; its size counts again each time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
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

from anabranch.cancel import poll
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
        return _composed(text, reading, loader or LOADER)
    except StopReading:
        return None
    except yaml.MarkedYAMLError as error:
        _report(error, text, reading)
        return None


def _composed(text: str, reading: Reading, loader: Any) -> Node | None:
    parser = loader(text)
    try:
        return _Composer(parser.get_event, reading).document()
    finally:
        parser.dispose()


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


class _Anchored(msgspec.Struct, frozen=True):
    """A node that aliases stand for, with its size and height, aliases in it written out."""

    node: Node
    size: int
    height: int


class _Composer:
    """Every node is read here, so the usual ones, plain words without anchor and tag, take few
    calls: large definitions have a hundred thousand of them."""

    def __init__(self, next_event: Callable[[], Any], reading: Reading) -> None:
        self._next = next_event
        self._reading = reading
        self._file = reading.file
        self._depth_max = reading.limits.depth_max
        self._values_max = reading.limits.values_max
        self._anchors: dict[str, _Anchored | None] = {}  # None while the node is being read
        self._values = 0  # so far, with the keys
        self._keys = 0  # how many of them are keys, or stand in keys
        self._deepest = 0  # how deep the values of the node that has an anchor are nested

    def document(self) -> Node | None:
        root: Node | None = None
        while type(event := self._next()) is not StreamEndEvent:
            if type(event) is DocumentStartEvent:
                if root is not None:
                    self._problem(event, "several-documents", "a second document starts here")
                    return root
                root = self._node(self._next(), 0)
        if isinstance(root, Scalar) and root.value is None:
            return None
        return root

    def _node(self, event: Any, depth: int) -> Node:
        if depth > self._depth_max:
            self._reading.check_depth(depth, *self._place(event))
        if type(event) is AliasEvent:
            return self._alias(event, depth)
        if event.anchor is not None:
            return self._anchored(event, depth)
        return self._counted(event, depth)

    def _counted(self, event: Any, depth: int) -> Node:
        kind = type(event)
        node: Node
        if kind is ScalarEvent:
            node = self._scalar(event)
        elif kind is SequenceStartEvent:
            self._check_tag(event, "seq")
            node = self._items(event, depth + 1)
        else:
            self._check_tag(event, "map")
            node = self._fields(event, depth + 1)
        self._count(1, event)
        return node

    def _anchored(self, event: Any, depth: int) -> Node:
        self._anchors[event.anchor] = None
        before, around, self._deepest = self._values - self._keys, self._deepest, depth
        node = self._counted(event, depth)
        size = self._values - self._keys - before
        self._anchors[event.anchor] = _Anchored(node, size, self._deepest - depth)
        self._deepest = max(around, self._deepest)
        return node

    def _alias(self, event: Any, depth: int) -> Node:
        found = self._anchors.get(event.anchor)
        if found is None:
            within = event.anchor in self._anchors
            what = "contains itself" if within else "is not defined above"
            self._problem(event, "bad-alias", f"the alias *{event.anchor} {what}")
            return Scalar(None, self._at(event))
        self._count(found.size, event)
        self._reading.check_depth(depth + found.height, *self._place(event))
        self._deepest = max(self._deepest, depth + found.height)
        return found.node

    def _count(self, size: int, event: Any) -> None:
        self._values += size
        if self._values > self._values_max:
            self._reading.check_values(self._values, *self._place(event))
        if not self._values & 63:
            poll()

    # -- collections -------------------------------------------------------------------------

    def _items(self, start: Any, depth: int) -> Items:
        """`depth` is that of what is in it."""
        poll()
        items: list[Node] = []
        while type(event := self._next()) is not SequenceEndEvent:
            items.append(self._node(event, depth))
        if items and depth > self._deepest:
            self._deepest = depth
        return Items(tuple(items), self._at(start))

    def _fields(self, start: MappingStartEvent, depth: int) -> Fields:
        poll()
        fields: dict[str, Node] = {}
        keys: dict[str, Position] = {}
        merged: list[Fields] = []
        while type(event := self._next()) is not MappingEndEvent:
            key = self._key(event, depth)
            value = self._node(self._next(), depth)
            if depth > self._deepest:
                self._deepest = depth
            if key is None:
                continue
            if key == "<<" and _is_plain(event):
                merged.extend(self._merged(event, value))
            elif key in keys:
                where = f"(first in line {keys[key].line})"
                message = f"the key {key!r} stands here again {where}"
                self._problem(event, "duplicate-key", message, "remove one of them")
            else:
                fields[key], keys[key] = value, self._at(event)
        for other in merged:
            for key, node in other.fields.items():
                if key not in fields:
                    fields[key], keys[key] = node, other.keys[key]
        return Fields(fields, keys, self._at(start))

    def _key(self, event: Any, depth: int) -> str | None:
        """A key as text. Words such as `on` stay the word; numbers and structures are refused."""
        before, deepest = self._values - self._keys, self._deepest
        node = self._node(event, depth)
        self._keys, self._deepest = self._values - before, deepest
        if type(node) is Scalar:
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
        if event.tag is None:
            value = text if event.style else self._resolved(text, event)
            return Scalar(value, self._at(event), style)
        kind = "" if event.tag == "!" else str(event.tag).removeprefix(_TAG)
        if kind not in ("", "str", "int", "float", "bool", "null"):
            self._problem(event, "unknown-tag", f"the tag {event.tag!r} is not known", "remove it")
        reads = kind in ("int", "float", "bool", "null")
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
        mark = event.start_mark
        return Position(mark.line + 1, mark.column + 1, self._file)

    def _place(self, event: Any) -> tuple[int, int]:
        return event.start_mark.line + 1, event.start_mark.column + 1

    def _problem(self, event: Any, code: str, message: str, hint: str = "") -> None:
        self._reading.problem(*self._place(event), code, message, hint)


def _is_plain(event: Any) -> bool:
    # The C parser says '' where the other one says None.
    return isinstance(event, ScalarEvent) and not event.style and event.tag is None


# -- plain words -----------------------------------------------------------------------------

_TYPES: dict[str, type] = {"int": int, "float": float, "bool": bool, "null": type(None)}
_TRUE = frozenset({"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})
_FALSE = frozenset({"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_WORDS = {**dict.fromkeys(_NULL), **dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_PREFIXED = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_DECIMAL = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def resolve(text: str) -> Any:
    """The value an unquoted word stands for. Raises ValueError for numbers JSON cannot hold."""
    if text in _WORDS:
        return _WORDS[text]
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
