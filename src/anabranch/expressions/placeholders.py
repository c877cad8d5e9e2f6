"""Placeholders `[Name]`, and whether a text is a text or an expression.

A value of a rule document is one of four things, decided once, when the document is loaded:

    copy         `[Price]` alone: the value itself, with its type
    literal      `true`, `-1.5`, `"quoted"`; digits only from 16 characters on stay text
    expression   it looks like one (see `_candidate`) and can be read as one
    text         everything else; placeholders are filled in, `[[` and `]]` are brackets

A text that looked like an expression and is none is worth a word to its author: see `lint`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

import msgspec

from anabranch.expressions.cel.cel import Cel, compile_cel
from anabranch.expressions.cel.lexer import unescaped
from anabranch.expressions.cel.values import (
    INT64,
    SOURCE_BYTES_MAX,
    CelError,
    CelLimitError,
    CelMissingName,
    text_of,
)

Sort = Literal["copy", "literal", "expression", "text"]

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_BARE = re.compile(rf"\[({_NAME})\]")
_PART = re.compile(rf"(?P<open>\[\[)|(?P<close>\]\])|\[(?P<name>{_NAME})\]")
_MARK = re.compile(rf"[\"']|\[({_NAME})\]")
_DOUBLED_MARK = re.compile(r"[\"']|\[\[\s*+(-?[0-9]++)\s*+\]\]")
_DOUBLED_END = re.compile(r"\s*+\]\]")
_QUOTED_AT: Final = {
    '"': re.compile(r'"(?:[^"\\]++|\\.)*"', re.DOTALL).match,
    "'": re.compile(r"'(?:[^'\\]++|\\.)*'", re.DOTALL).match,
}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<fraction>\.[0-9]+)?(?P<power>[eE][+-]?[0-9]+)?")
_OPERATORS: Final = frozenset("*/%()<>!=|&")
_NUMBER_BEFORE = re.compile(r"[0-9]++(?:\.[0-9]++)?")
_NUMBER_AFTER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?!\w)")
_FILLED, _SAID = "\0", "\1"  # what stands for a placeholder and for a quoted part
LONG_DIGITS: Final = 16
INT64_DIGITS: Final = 20  # with a sign; Python reads none of some thousands


# -- templates -------------------------------------------------------------------------------


class Placeholder(msgspec.Struct, frozen=True):
    name: str


class PlaceholderText(msgspec.Struct, frozen=True):
    """A text with placeholders, never an expression: addresses, bodies, headers."""

    text: str
    parts: tuple[str | Placeholder, ...]
    names: frozenset[str]

    @property
    def placeholders(self) -> int:
        return sum(isinstance(part, Placeholder) for part in self.parts)

    def render(self, names: Mapping[str, Any], encode: Callable[[Any], str] = text_of) -> str:
        """The text with its placeholders filled; `CelMissingName` when one cannot be."""
        _require(self.names, names)
        return "".join(
            encode(names[part.name]) if isinstance(part, Placeholder) else part
            for part in self.parts
        )


def compile_template(text: str) -> PlaceholderText:
    parts: list[str | Placeholder] = []
    at = 0
    for found in _PART.finditer(text):
        parts.append(text[at : found.start()])
        if found.group("name"):
            parts.append(Placeholder(found.group("name")))
        else:
            parts.append("[" if found.group("open") else "]")
        at = found.end()
    parts.append(text[at:])
    kept = tuple(part for part in parts if part != "")
    return PlaceholderText(
        text, kept, frozenset(p.name for p in kept if isinstance(p, Placeholder))
    )


def url_encoded(value: Any) -> str:
    """A value inside an address: nothing in it can end a path segment or a parameter."""
    return quote(text_of(value), safe="", errors="replace")


def _require(wanted: frozenset[str], names: Mapping[str, Any]) -> None:
    if lacking := wanted.difference(names):
        raise CelMissingName(f"there is no {', '.join(sorted(lacking))}")


# -- expressions -----------------------------------------------------------------------------


def compile_expression(text: str, *, strict: bool = False) -> Cel:
    """A text that is always an expression: rules and extracts."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > SOURCE_BYTES_MAX:
        raise CelLimitError(f"the expression has {size} bytes; at most {SOURCE_BYTES_MAX} work")
    return compile_cel(rewritten(text), shown=text, strict=strict)


def rewritten(text: str) -> str:
    """Placeholders as names, then `[[0]]` as `[0]`. Quoted parts stay as they are.

    A name in brackets right behind an operand (`items[i]`) is an index and no placeholder."""

    def name_or_same(part: _Part) -> str:
        if not _is_placeholder(part, text):
            return text[part.start : part.end]
        behind_digit = text[part.start - 1 : part.start].isdigit()
        return f" {part.name} " if behind_digit else part.name

    once = _replaced(text, _parts(text, _MARK), name_or_same)
    return _replaced(once, _doubled(once), lambda part: f"[{part.name}]")


class _Part(NamedTuple):
    """What a name or a number in brackets takes of a text, or a quoted part, which has none."""

    start: int
    end: int
    name: str


def _parts(text: str, marks: re.Pattern[str]) -> Iterator[_Part]:
    """One after the other. Where nothing closes a quote, nothing closes one of its kind behind it:
    the rest of the text is read for the first of them only."""
    at, unclosed = 0, set[str]()
    while found := marks.search(text, at):
        start, at = found.span()
        mark = found.group()
        if mark not in _QUOTED_AT:
            yield _Part(start, at, found[1])
        elif mark not in unclosed:
            if quoted := _QUOTED_AT[mark](text, start):
                at = quoted.end()
                yield _Part(start, at, "")
            else:
                unclosed.add(mark)


def _doubled(text: str) -> Iterator[_Part]:
    """The numbers and quoted parts in two brackets."""
    at = 0
    for start, end, number in _parts(text, _DOUBLED_MARK):
        before, closed = text[at:start].rstrip(), _DOUBLED_END.match(text, end)
        if number:
            yield _Part(start, end, number)
        elif closed and before.endswith("[["):
            yield _Part(at + len(before) - 2, closed.end(), text[start:end])
        at = end


def _replaced(text: str, parts: Iterable[_Part], write: Callable[[_Part], str]) -> str:
    written, at = [], 0
    for part in parts:
        written += [text[at : part.start], write(part)]
        at = part.end
    return "".join([*written, text[at:]])


def _is_placeholder(part: _Part, text: str) -> bool:
    before = text[part.start - 1 : part.start] if part.start else ""
    return bool(part.name) and before not in (")", "]") and not before.isidentifier()


def placeholders_in(expression: str) -> int:
    """How often an expression says `[Name]`; a name without brackets is none."""
    return sum(_is_placeholder(part, expression) for part in _parts(expression, _MARK))


# -- either of them --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a document, ready to be worked out."""

    text: str  # as the author wrote it
    sort: Sort
    names: frozenset[str]
    run: Callable[[Mapping[str, Any]], Any] = field(repr=False, compare=False)
    candidate: bool = False  # a text that looked like an expression
    cel: Cel | None = None

    @property
    def placeholders(self) -> int:
        match self.sort:
            case "literal":
                return 0
            case "expression":
                return placeholders_in(self.text)
            case _:
                return compile_template(self.text).placeholders

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """`CelMissingName` when a name is not there, `CelError` when it cannot be computed."""
        _require(self.names, names)
        return self.run(names)


def constant(value: Any) -> Value:
    """A value of the document that is no text."""
    return Value(repr(value), "literal", frozenset(), lambda _names: value)


def compile_value(text: str, known: Collection[str] = ()) -> Value:
    """Decide what a text is. `known` are the names a document declares.

    Raises `CelError` for what must be an expression but cannot be read as one."""
    bare = text.strip()
    if found := _BARE.fullmatch(bare):
        name = found.group(1)
        return Value(text, "copy", frozenset({name}), lambda names: names[name])
    literal = _literal(bare)
    if literal is not None:
        return Value(text, "literal", frozenset(), lambda _names: literal[0])
    certain, possible, joined = _candidate(text)
    if certain or possible:
        cel = _expression(text, known, certain)
        if cel is not None:
            return Value(text, "expression", cel.names, cel.evaluate_checked, cel=cel)
    template = compile_template(text)
    looked = certain or possible or joined
    return Value(text, "text", template.names, template.render, candidate=looked)


def _literal(text: str) -> tuple[Any] | None:
    """The value of a literal in a tuple, or None."""
    if text in ("true", "false"):
        return (text == "true",)
    if text.isdigit() and text.isascii() and len(text) >= LONG_DIGITS:
        return (text,)
    if found := _NUMBER.fullmatch(text):
        if found.group("fraction") or found.group("power"):
            number = float(text)
            return (number,) if abs(number) != float("inf") else (text,)
        fits = len(text) <= INT64_DIGITS and INT64[0] <= int(text) <= INT64[1]
        return (int(text),) if fits else (text,)
    if (quoted := next(_parts(text, _MARK), None)) and quoted == (0, len(text), ""):
        try:
            return (unescaped(text[1:-1]),)
        except CelError:
            return (text[1:-1],)
    return None


def _candidate(text: str) -> tuple[bool, bool, bool]:
    """Whether operators or calls make it look like an expression, and whether a sign does.

    A sign counts only in a text with placeholders: beside a number, or between blanks with an
    operand on either side. `[Base]-[Quote]` is a text, `[Base] - [Quote]` is a difference. The
    third answer is for `lint` alone: a sign beside something quoted stays text."""
    if not _OPERATORS.intersection(text) and "+" not in text and "-" not in text:
        return False, False, False
    bones = _replaced(text, _parts(text, _MARK), lambda part: _FILLED if part.name else _SAID)
    certain = bool(_OPERATORS.intersection(bones))
    signs = [at for at, letter in enumerate(bones) if letter in "+-"] if _BARE.search(text) else []
    possible = any(_computes(bones, at, "") for at in signs)
    return certain, possible, any(_computes(bones, at, _SAID) for at in signs)


def _computes(bones: str, at: int, also: str) -> bool:
    left, right = at, at + 1
    while left and bones[left - 1].isspace():
        left -= 1
    while right < len(bones) and bones[right].isspace():
        right += 1
    if _NUMBER_BEFORE.fullmatch(bones, _word_start(bones, left), left):
        return True
    if _NUMBER_AFTER.match(bones, right):
        return True
    spaced = left != at and right != at + 1
    before, after = bones[left - 1 : left], bones[right : right + 1]
    return spaced and bool(
        before and after and before in f"{_FILLED})]}}{also}" and after in f"{_FILLED}([{also}"
    )


def _word_start(bones: str, end: int) -> int:
    """Where the letters, digits and dots begin that end here."""
    while end and (bones[end - 1].isalnum() or bones[end - 1] in "_."):
        end -= 1
    return end


def _expression(text: str, known: Collection[str], certain: bool) -> Cel | None:
    """The candidate as an expression, or None when it is a text after all."""
    filled = _BARE.search(text) is not None
    try:
        cel = compile_expression(text)
    except CelError:
        if filled and certain:
            raise
        return None
    if not filled and not cel.names <= set(known):
        return None
    return cel


def lint(value: Value) -> str:
    """What the author should know about how the value was read; "" when there is nothing."""
    if value.sort == "text" and value.candidate:
        return "this looks like an expression but is taken as text"
    if value.sort == "expression" and not value.names:
        return "this is computed, because it can be read as an expression"
    return ""
