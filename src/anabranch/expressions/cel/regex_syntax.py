"""The syntax of regular expressions: RE2's, as far as `matches` needs it, read into a tree."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from anabranch.expressions.cel.values import CelEvalError

REPEAT_MAX: Final = 1000
NESTING_MAX: Final = 50

Test = Callable[[str], bool]

# -- the tree of a pattern ---------------------------------------------------------------------


class One(msgspec.Struct, frozen=True):
    """One character."""

    test: Test


class Anchor(msgspec.Struct, frozen=True):
    """A place between characters: `^ $ \\b \\B` by their sign."""

    sign: str


class Sequence(msgspec.Struct, frozen=True):
    parts: tuple[Part, ...]


class Choice(msgspec.Struct, frozen=True):
    parts: tuple[Part, ...]


class Repeat(msgspec.Struct, frozen=True):
    part: Part
    least: int
    most: int | None


Part = One | Anchor | Sequence | Choice | Repeat


def is_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


def _is_digit(character: str) -> bool:
    return "0" <= character <= "9"


def _is_space(character: str) -> bool:
    return character in "\t\n\f\r "


def _not(test: Test) -> Test:
    return lambda character: not test(character)


_CLASSES: Final[dict[str, Test]] = {
    "d": _is_digit,
    "w": is_word,
    "s": _is_space,
}
_CONTROLS: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_PUNCTUATION: Final = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_POSIX: Final[dict[str, Test]] = {
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "ascii": lambda c: c.isascii(),
    "blank": lambda c: c in "\t ",
    "cntrl": lambda c: c < " " or c == "\x7f",
    "digit": _is_digit,
    "graph": lambda c: "!" <= c <= "~",
    "lower": lambda c: "a" <= c <= "z",
    "print": lambda c: " " <= c <= "~",
    "punct": lambda c: c in _PUNCTUATION,
    "space": lambda c: c in "\t\n\v\f\r ",
    "upper": lambda c: "A" <= c <= "Z",
    "word": is_word,
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
}
_FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_OTHER_FLAGS = re.compile(r"\(\?[A-Za-z-]+[:)]")
_POSIX_NAME = re.compile(r"\[:(\^?)(.*?):\]", re.DOTALL)
_NUMBER: Final = "(0|[1-9][0-9]{0,8})"  # RE2 takes `{02}` for the characters as they stand
_COUNT = re.compile(rf"\{{{_NUMBER}(?:(,){_NUMBER}?)?\}}")
_NAME = re.compile(r"\?P?<([^>]*)>")
_IN_NAMES: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Mn", "Mc", "Nd", "Pc"})
_OCTAL = re.compile(r"[1-7][0-7]{1,2}|0[0-7]{0,2}")
_CATEGORY = re.compile(r"\{(\^?)([A-Za-z_]+)\}|()([A-Za-z])")
_CATEGORIES: Final = {  # by their first letter
    "C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps",
}  # fmt: skip
_CASED_END: Final = 0x1E960  # no letter beyond has two cases


@lru_cache(maxsize=1)
def _variants() -> Mapping[str, tuple[str, ...]]:
    """Every character that has another case, with all that are the same but for case."""
    groups: dict[str, list[str]] = defaultdict(list)
    for character in map(chr, range(_CASED_END)):
        folded = character.casefold()
        if folded != character:
            groups[folded].append(character)
    found: dict[str, tuple[str, ...]] = {}
    for folded, characters in groups.items():
        group = (*characters, *(folded if len(folded) == 1 else ()))
        found.update(dict.fromkeys(group, group))
    return found


def _any_case(test: Test) -> Test:
    """The test, passed also by a character that differs only in case from one that passes it."""
    return lambda character: any(map(test, _variants().get(character, character)))


def _has_category(name: str) -> bool:
    return len(name) <= 2 and name[1:] in _CATEGORIES.get(name[0], ())


def _is_category(wanted: str) -> Test:
    if wanted == "C":  # RE2 leaves out what is not assigned
        return lambda character: unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs")
    return lambda character: unicodedata.category(character).startswith(wanted)


def wrong(message: str) -> CelEvalError:
    return CelEvalError(f"matches: {message}")


def read_pattern(pattern: str) -> Part:
    return _Reader(pattern).whole()


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._flags: frozenset[str] = frozenset()
        self._nesting = 0

    def whole(self) -> Part:
        part = self._choice()
        if self._at < len(self._text):
            raise wrong("a `)` closes nothing")
        return part

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise wrong("the pattern ends too early")
        self._at += 1
        return character

    def _taken(self, sign: str) -> bool:
        if self._text.startswith(sign, self._at):
            self._at += len(sign)
            return True
        return False

    def _choice(self) -> Part:
        options = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Part:
        parts: list[Part] = []
        while self._peek() not in ("", "|", ")"):
            if self._taken("\\Q"):
                self._quote(parts)
            else:
                part = self._atom()
                parts += [] if part is None else [part]
            if parts:  # a repetition behind flags is one of what stands before them
                parts.append(self._repeated(parts.pop()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _quote(self, parts: list[Part]) -> None:
        """Read what follows `\\Q`, character for character, until `\\E` or the end."""
        quoted, _, _ = self._text[self._at :].partition("\\E")
        parts += [One(self._same(character)) for character in quoted]
        self._at += len(quoted)
        self._taken("\\E")

    def _repeated(self, part: Part) -> Part:
        bounds = self._bounds()
        if bounds is None:
            return part
        if self._peek() == "?":  # lazy: which match is found does not matter here
            self._at += 1
        if self._bounds() is not None:
            raise wrong("a repetition is repeated; put it into a group")
        return Repeat(part, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if self._peek() in simple and self._peek():
            return simple[self._take()]
        found = _COUNT.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        least = int(found.group(1))
        most = least if not found.group(2) else int(found.group(3)) if found.group(3) else None
        if max(least, most or 0) > REPEAT_MAX or (most is not None and most < least):
            raise wrong(f"a repetition goes from 0 to {REPEAT_MAX}, the smaller number first")
        return least, most

    # -- atoms -------------------------------------------------------------------------------

    def _atom(self) -> Part | None:
        if _COUNT.match(self._text, self._at):
            raise wrong("there is nothing to repeat")
        character = self._take()
        match character:
            case "(":
                return self._group()
            case "[":
                return One(self._class())
            case ".":
                return One(_anything if "s" in self._flags else _no_line_end)
            case "^":
                return Anchor("line ^" if "m" in self._flags else "^")
            case "$":
                return Anchor("line $" if "m" in self._flags else "$")
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise wrong("there is nothing to repeat")
        return One(self._same(character))

    def _same(self, character: str) -> Test:
        return self._set(lambda other: other == character)

    def _set(self, test: Test) -> Test:
        """A set of characters as the flags want it; it is negated after this, as RE2 does."""
        return _any_case(test) if "i" in self._flags else test

    def _group(self) -> Part | None:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise wrong(f"groups are nested more than {NESTING_MAX} deep")
        flags_before = self._flags
        if self._peek() == "?" and self._opening():
            self._nesting -= 1
            return None  # flags for what follows in the group around
        part = self._choice()
        if self._peek() != ")":
            raise wrong("a `(` is not closed")
        self._at += 1
        self._flags = flags_before
        self._nesting -= 1
        return part

    def _opening(self) -> bool:
        """Read what follows `(?`; true when it was nothing but flags."""
        flags = _FLAGS.match(self._text, self._at - 1)
        if flags is not None:
            self._at = flags.end()
            self._flags = (self._flags | set(flags.group(1))) - set(flags.group(2) or "")
            return flags.group(3) == ")"
        named = _NAME.match(self._text, self._at)
        if named is None or self._text.startswith(("?<=", "?<!"), self._at):
            raise self._unknown_group()
        name = named.group(1)
        if not name or any(unicodedata.category(each) not in _IN_NAMES for each in name):
            raise wrong("the name of a group is letters, digits and `_`")
        self._at = named.end()
        return False

    def _unknown_group(self) -> CelEvalError:
        if self._text.startswith(("?=", "?!", "?<=", "?<!"), self._at):
            return wrong("look-around is not part of RE2")
        if _OTHER_FLAGS.match(self._text, self._at - 1):
            return wrong("RE2 has the flags i, m, s and U, and no other")
        return wrong("this form of `(?…)` is not part of RE2")

    def _escape(self) -> Part:
        character = self._take()
        places = {"b": "b", "B": "B", "A": "^", "z": "$"}
        if character in places:
            return Anchor(places[character])
        named = self._named_set(character)
        return One(self._same(self._escaped(character)) if named is None else named)

    def _named_set(self, character: str) -> Test | None:
        """`\\d`, `\\pL` and their like; None for an escape that is one character."""
        if character.lower() in _CLASSES:
            test = self._set(_CLASSES[character.lower()])
            return test if character.islower() else _not(test)
        return self._category(character == "P") if character in ("p", "P") else None

    def _escaped(self, character: str) -> str:
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "x":
            found = re.compile(r"([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\}").match(
                self._text, self._at
            )
            code = int(found.group(1) or found.group(2), 16) if found else 0x110000
            if found is None or code > 0x10FFFF:
                raise wrong("`\\x` needs two hexadecimal digits")
            self._at = found.end()
            return chr(code)
        octal = _OCTAL.match(self._text, self._at - 1)
        if octal is not None:
            self._at = octal.end()
            return chr(int(octal.group(), 8))
        if character.isascii() and not character.isalnum():
            return character
        if "0" <= character <= "9":
            raise wrong("back references are not part of RE2")
        if character == "C":
            raise wrong("RE2's `\\C` (one byte) is not supported here; `.` is one character")
        raise wrong("RE2 has no such escape")

    def _category(self, negated: bool) -> Test:
        found = _CATEGORY.match(self._text, self._at)
        if found is None:
            raise wrong("`\\p` takes a general category such as \\p{L} or \\pN")
        self._at = found.end()
        wanted = found.group(2) or found.group(4)
        if wanted != "Any" and not _has_category(wanted):
            if len(wanted) > 2:
                raise wrong(
                    "RE2's scripts, such as \\p{Greek}, are not supported here; "
                    "use a general category such as \\p{L}, or a range"
                )
            raise wrong("there is no such general category; \\p{L}, \\p{Lu} and \\pN are some")
        test = self._set(_anything if wanted == "Any" else _is_category(wanted))
        return _not(test) if negated != bool(found.group(1)) else test

    def _class(self) -> Test:
        negated = self._peek() == "^"
        self._at += negated
        tests: list[Test] = []
        first = True
        while first or self._peek() != "]":
            tests.append(self._class_item())
            first = False
        self._at += 1
        if negated:
            return lambda character: not any(test(character) for test in tests)
        return lambda character: any(test(character) for test in tests)

    def _class_item(self) -> Test:
        posix = _POSIX_NAME.match(self._text, self._at)
        if posix is not None:
            if posix.group(2) not in _POSIX:
                raise wrong("unknown character class between `[:` and `:]`")
            self._at = posix.end()
            test = self._set(_POSIX[posix.group(2)])
            return _not(test) if posix.group(1) else test
        low = self._class_character()
        if not isinstance(low, str):
            return low
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return self._same(low)
        self._at += 1
        high = self._class_character()
        if not isinstance(high, str) or high < low:
            raise wrong("a range of characters goes from the smaller to the larger")
        return self._set(lambda character: low <= character <= high)

    def _class_character(self) -> str | Test:
        character = self._take()
        if character != "\\":
            return character
        escaped = self._take()
        return self._named_set(escaped) or self._escaped(escaped)


def _anything(_character: str) -> bool:
    return True


def _no_line_end(character: str) -> bool:
    return character != "\n"
