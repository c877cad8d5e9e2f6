"""JSON with the place of every key and value."""

from __future__ import annotations

import re
from bisect import bisect_right
from json import JSONDecodeError, JSONDecoder
from math import isfinite

from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.reading import Reading, StopReading
from anabranch.net.problems import Position

_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_STRINGS = JSONDecoder()
_WORDS = {"true": True, "false": False, "null": None}


def read_json(text: str, reading: Reading) -> Node | None:
    try:
        return _Json(text, reading).document()
    except StopReading:
        return None


class _Json:
    def __init__(self, text: str, reading: Reading) -> None:
        self._text = text
        self._reading = reading
        self._line_starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self._values = 0
        self._at = 0

    def document(self) -> Node:
        self._skip_blank()
        root = self._value(0)
        self._skip_blank()
        if self._at < len(self._text):
            raise self._wrong("more text follows the end of the document", "remove it")
        return root

    # -- places ------------------------------------------------------------------------------

    def _place(self, index: int) -> tuple[int, int]:
        line = bisect_right(self._line_starts, index)
        return line, index - self._line_starts[line - 1] + 1

    def _position(self) -> Position:
        return self._reading.at(*self._place(self._at))

    def _wrong(self, message: str, hint: str = "", at: int | None = None) -> StopReading:
        return self._reading.stop(*self._place(self._at if at is None else at), message, hint)

    def _skip_blank(self) -> None:
        found = _BLANK.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    # -- values ------------------------------------------------------------------------------

    def _value(self, depth: int) -> Node:
        self._values += 1
        line, column = self._place(self._at)
        self._reading.check_depth(depth, line, column)
        self._reading.check_values(self._values, line, column)
        match self._peek():
            case "{":
                return self._object(depth)
            case "[":
                return self._array(depth)
            case '"':
                position = self._position()
                return Scalar(self._string(), position, "quoted")
        return self._word() or self._number()

    def _object(self, depth: int) -> Fields:
        position = self._position()
        fields: dict[str, Node] = {}
        keys: dict[str, Position] = {}
        while self._more("}", first=not keys):
            self._key(fields, keys, depth)
        return Fields(fields, keys, position)

    def _key(self, fields: dict[str, Node], keys: dict[str, Position], depth: int) -> None:
        if self._peek() != '"':
            raise self._wrong("a key in double quotes is expected here", self._hint_here())
        position = self._position()
        key = self._string()
        self._skip_blank()
        if self._peek() != ":":
            raise self._wrong(f"the key {key!r} needs a colon after it", "write `:`")
        self._at += 1
        self._skip_blank()
        value = self._value(depth + 1)
        if key in keys:
            self._duplicate(key, position, keys[key])
        else:
            fields[key], keys[key] = value, position

    def _duplicate(self, key: str, position: Position, first: Position) -> None:
        message = f"the key {key!r} stands here again (first in line {first.line})"
        self._reading.problem(
            position.line, position.column, "duplicate-key", message, "remove one of them"
        )

    def _array(self, depth: int) -> Items:
        position = self._position()
        items: list[Node] = []
        while self._more("]", first=not items):
            items.append(self._value(depth + 1))
        return Items(tuple(items), position)

    def _more(self, closing: str, *, first: bool) -> bool:
        """Step over the opening or the comma; false at the end, which is stepped over too."""
        if first:
            opening = {"}": "{", "]": "["}[closing]
            if self._peek() == opening:
                self._at += 1
        self._skip_blank()
        if self._peek() == closing:
            self._at += 1
            return False
        if not first:
            self._comma(closing)
        return True

    def _comma(self, closing: str) -> None:
        if self._peek() != ",":
            raise self._wrong(f"a comma or {closing!r} is expected here", self._hint_here())
        comma = self._at
        self._at += 1
        self._skip_blank()
        if self._peek() == closing:
            raise self._wrong("the last entry has a comma after it", "remove the comma", comma)

    def _string(self) -> str:
        start = self._at
        value: str
        try:
            value, self._at = _STRINGS.raw_decode(self._text, start)
        except JSONDecodeError as error:
            raise self._wrong(error.msg[:1].lower() + error.msg[1:], at=error.pos) from None
        if not value.isascii() and re.search("[\ud800-\udfff]", value):
            self._bad_value(start, "half of a surrogate pair is not a character")
            return ""
        return value

    def _word(self) -> Scalar | None:
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._at):
                scalar = Scalar(value, self._position())
                self._at += len(word)
                return scalar
        return None

    def _number(self) -> Scalar:
        found = _NUMBER.match(self._text, self._at)
        if found is None:
            raise self._wrong("a value is expected here", self._hint_here())
        position, start = self._position(), self._at
        self._at = found.end()
        if found.group(1) or found.group(2):
            number = float(found.group())
            if not isfinite(number):
                self._bad_value(start, "the number is too large")
            return Scalar(number, position)
        if len(found.group()) > 20 or not -(2**63) <= int(found.group()) < 2**64:
            self._bad_value(start, "the whole number is beyond 64 bits")
            return Scalar(0, position)
        return Scalar(int(found.group()), position)

    def _bad_value(self, index: int, message: str) -> None:
        self._reading.problem(*self._place(index), "bad-value", message, "write it as text")

    def _hint_here(self) -> str:
        match self._peek():
            case "":
                return "the text ends too early; close what is open"
            case "'":
                return "JSON has only double quotes"
            case "/" | "#":
                return "JSON has no comments"
        return ""
