"""Shapes: what a field may hold, declared once and checked with every problem at its place.

A shape adds what is wrong to `found` and never raises. `Fields` is the shape of an object: which
fields it must and may have, whether others are allowed, and the rules that look at several fields.
A rule reads fields through `text_of`, `whole_of` and `instant_of`, which give nothing where the
field is missing or wrong, so that a rule has nothing to say about what the shape refused already.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from anabranch.errors import InputError
from anabranch.market.documents.limits import WHOLE_MAX
from anabranch.market.documents.problems import Found, below, shown
from anabranch.market.passports import instant
from anabranch.net.problems import closest

ID_MAX = 1024  # characters of an id, a name, a reference

Object = Mapping[str, Any]


class Shape(Protocol):
    def check(self, value: Any, path: str, found: Found) -> None: ...

    def words(self) -> str:
        """What it takes, for people."""


Rule = Callable[[Object, str, Found], None]


# -- single values ---------------------------------------------------------------------------


class Anything:
    def check(self, value: Any, path: str, found: Found) -> None:
        """Any JSON value will do."""

    def words(self) -> str:
        return "any JSON"


@dataclass(frozen=True)
class Text:
    """A text. `form` says in words what `pattern` demands."""

    pattern: re.Pattern[str] | None = None
    form: str = ""
    least: int = 1
    most: int = ID_MAX
    secret: bool = False  # its value is never told

    def check(self, value: Any, path: str, found: Found) -> None:
        if not isinstance(value, str):
            found.add(path, "wrong-type", f"{_given(value, self.secret)} is here; write a text")
        elif not self.least <= len(value) <= self.most:
            length = f"{self.least} to {self.most:,} characters"
            found.add(path, "bad-text", f"{len(value):,} characters are here; write {length}")
        elif self.pattern is not None and not self.pattern.fullmatch(value):
            given = _given(value, self.secret)
            found.add(path, "bad-text", f"{given} is here; write {self.form}")

    def words(self) -> str:
        return self.form or ("text" if self.most >= ID_MAX else f"text of up to {self.most:,}")


def _given(value: Any, secret: bool) -> str:
    return "another value" if secret else shown(value)


def pattern(form: str, expression: str, *, least: int = 1, most: int = ID_MAX) -> Text:
    return Text(re.compile(expression), form, least, most)


@dataclass(frozen=True)
class Constant:
    value: Any

    def check(self, value: Any, path: str, found: Found) -> None:
        if type(value) is not type(self.value) or value != self.value:
            found.add(path, "wrong-value", f"{shown(value)} is here; write {shown(self.value)}")

    def words(self) -> str:
        return shown(self.value)


@dataclass(frozen=True)
class Choice:
    options: tuple[str, ...]

    def check(self, value: Any, path: str, found: Found) -> None:
        if not isinstance(value, str):
            found.add(path, "wrong-type", f"{shown(value)} is here; write {self.words()}")
        elif value not in self.options:
            meant = closest(value, self.options)
            hint = f"; {meant}" if meant else ""
            found.add(path, "bad-choice", f"{shown(value)} is here; write {self.words()}{hint}")

    def words(self) -> str:
        return f"one of {', '.join(self.options)}" if len(self.options) > 1 else self.options[0]


def choice(*words: str) -> Choice:
    return Choice(words)


class Flag:
    def check(self, value: Any, path: str, found: Found) -> None:
        if not isinstance(value, bool):
            found.add(path, "wrong-type", f"{shown(value)} is here; write true or false")

    def words(self) -> str:
        return "true or false"


@dataclass(frozen=True)
class Whole:
    """A whole number."""

    least: int = 0
    most: int = WHOLE_MAX
    code: str = "bad-number"

    def check(self, value: Any, path: str, found: Found) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            found.add(path, "wrong-type", f"{shown(value)} is here; write a whole number")
        elif not self.least <= value <= self.most:
            found.add(path, self.code, f"{shown(value)} is here; write {self._bounds()}")

    def _bounds(self) -> str:
        endless = self.most == WHOLE_MAX
        return f"{self.least:,} or more" if endless else f"{self.least:,} to {self.most:,}"

    def words(self) -> str:
        return f"whole number, {self._bounds()}"


@dataclass(frozen=True)
class Number:
    """A number with or without a point."""

    least: float
    most: float

    def check(self, value: Any, path: str, found: Found) -> None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            found.add(path, "wrong-type", f"{shown(value)} is here; write a number")
        elif not self.least <= value <= self.most:
            found.add(path, "bad-number", f"{shown(value)} is here; write a {self.words()}")

    def words(self) -> str:
        return f"number from {self.least:g} to {self.most:g}"


class Instant:
    """An RFC 3339 time."""

    def check(self, value: Any, path: str, found: Found) -> None:
        if not isinstance(value, str):
            found.add(path, "wrong-type", f"{shown(value)} is here; write an RFC 3339 time")
        elif moment(value) is None:
            example = "2026-06-10T08:00:00Z"
            found.add(path, "bad-time", f"{shown(value)} is no time; write one such as {example}")

    def words(self) -> str:
        return "RFC 3339 time"


@dataclass(frozen=True)
class OrNull:
    shape: Shape

    def check(self, value: Any, path: str, found: Found) -> None:
        if value is not None:
            self.shape.check(value, path, found)

    def words(self) -> str:
        return f"{self.shape.words()}, or null"


@dataclass(frozen=True)
class TextOr:
    """A text, or something of another shape."""

    other: Shape

    def check(self, value: Any, path: str, found: Found) -> None:
        if not isinstance(value, str):
            self.other.check(value, path, found)

    def words(self) -> str:
        return f"text, or {self.other.words()}"


ANYTHING, FLAG, INSTANT = Anything(), Flag(), Instant()
NAME = Text()
FREE_TEXT = Text(least=0, most=1024 * 1024)


# -- values of several parts -----------------------------------------------------------------


@dataclass(frozen=True)
class ListOf:
    shape: Shape
    least: int = 0
    most: int = 10_000
    distinct: bool = False

    def check(self, value: Any, path: str, found: Found) -> None:
        if not isinstance(value, list):
            found.add(path, "wrong-type", f"{shown(value)} is here; write a list")
            return
        if not self.least <= len(value) <= self.most:
            count = f"{self.least:,} to {self.most:,} entries"
            found.add(path, "bad-list", f"{len(value):,} entries are here; write {count}")
        for position, each in enumerate(value[: self.most]):
            self.shape.check(each, below(path, position), found)
        if self.distinct:
            self._check_distinct(value, path, found)

    def words(self) -> str:
        least = f", at least {self.least}" if self.least else ""
        return f"list{least}: {self.shape.words()}"

    def _check_distinct(self, value: list[Any], path: str, found: Found) -> None:
        seen: set[str] = set()
        for position, each in enumerate(value):
            if isinstance(each, str):
                if each in seen:
                    message = f"{shown(each)} stands here again; name it once"
                    found.add(below(path, position), "bad-list", message)
                seen.add(each)


@dataclass(frozen=True)
class MapOf:
    """An object with any keys, whose values have one shape."""

    shape: Shape = ANYTHING

    def check(self, value: Any, path: str, found: Found) -> None:
        if not isinstance(value, dict):
            found.add(path, "wrong-type", f"{shown(value)} is here; write an object")
            return
        if self.shape is not ANYTHING:
            for key, each in value.items():
                self.shape.check(each, below(path, key), found)

    def words(self) -> str:
        return "object" if self.shape is ANYTHING else f"object: {self.shape.words()}"


OBJECT = MapOf()


@dataclass(frozen=True)
class Fields:
    """An object: the fields it must have and may have, and rules over several of them."""

    required: Mapping[str, Shape]
    optional: Mapping[str, Shape] = field(default_factory=dict)
    closed: bool = False
    rules: Sequence[Rule] = ()
    #: What the host fills in: a draft may come without it.
    by_host: frozenset[str] = frozenset()
    name: str = ""  # of documents that others hold

    def check(self, value: Any, path: str, found: Found) -> None:
        if not isinstance(value, dict):
            found.add(path, "wrong-type", f"{shown(value)} is here; write an object")
            return
        for key, shape in self.required.items():
            if key in value:
                shape.check(value[key], below(path, key), found)
            elif not (found.draft and key in self.by_host):
                found.add(below(path, key), "missing-field", f"`{key}` is missing; add it")
        for key, shape in self.optional.items():
            if key in value:
                shape.check(value[key], below(path, key), found)
        if self.closed:
            self._check_closed(value, path, found)
        for rule in self.rules:
            rule(value, path, found)

    def words(self) -> str:
        named = [*self.required, *(f"{key}?" for key in self.optional)]
        return self.name or f"{{{', '.join(named)}}}"

    def _check_closed(self, value: Object, path: str, found: Found) -> None:
        known = [*self.required, *self.optional]
        for key in value:
            if key not in self.required and key not in self.optional:
                hint = "" if found.is_full else closest(key, known) or "remove it"
                message = f"there is no field {shown(key)} here; {hint}"
                found.add(below(path, key), "unknown-field", message)


@dataclass(frozen=True)
class Selected:
    """An object whose field `key` says which of several shapes it has."""

    key: str
    shapes: Mapping[str, Fields]

    def check(self, value: Any, path: str, found: Found) -> None:
        if not isinstance(value, dict):
            found.add(path, "wrong-type", f"{shown(value)} is here; write an object")
            return
        if self.key not in value:
            found.add(below(path, self.key), "missing-field", f"`{self.key}` is missing; add it")
            return
        named = value[self.key]
        shape = self.shapes.get(named) if isinstance(named, str) else None
        if shape is None:
            Choice(tuple(self.shapes)).check(named, below(path, self.key), found)
        else:
            shape.check(value, path, found)

    def words(self) -> str:
        return f"object, `{self.key}` one of {', '.join(self.shapes)}"


# -- reading fields in rules -----------------------------------------------------------------


def moment(value: Any) -> int | None:
    """Milliseconds since the epoch, or nothing where it is no time."""
    try:
        return instant(value, "time")
    except (InputError, OverflowError):
        return None


def instant_of(document: Object, key: str) -> int | None:
    return moment(document.get(key)) if isinstance(document.get(key), str) else None


def text_of(document: Object, key: str) -> str | None:
    value = document.get(key)
    return value if isinstance(value, str) else None


def whole_of(document: Object, key: str) -> int | None:
    value = document.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
