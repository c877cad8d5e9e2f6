"""Escapes undone: a text as its last reader would have it, and where every letter of it stood.

Whoever looks for a secret in all the ways in which it may be written undoes the writing, of the
secret and of the text, and compares letter by letter. Each pass reads its text once, so the work
grows as the text does, whatever it is made of. What several languages write for one character comes
to one letter:

    %2d, %252d, &#45;, &#x2d;, &amp;#45;, &dash;, \\u002d, \\\\u002d, \\x2d    the character
    a backslash before anything else                                      nothing
    a line break, a tab and the like                                      n, t, …, as after a \\
    quotes of either sort, however many                                   one quote
    + and a blank                                                         a blank
    ß and the like                                                        ss
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from functools import cache, lru_cache
from html.entities import html5

Span = tuple[int, int]
Letter = Callable[[re.Match[str]], str | None]

_WEB = re.compile(
    r"%(?:25)*([0-9a-f]{2})"  # a percent sign is %25: `%25252d` was written three times
    r"|&(?:amp;|#0*+38;|#x0*+26;)*"
    r"(?:#(?=[0-9])0*+([0-9]{0,7})|#x(?=[0-9a-f])0*+([0-9a-f]{0,6})|([a-z][a-z0-9]{1,31}));"
)
_BACKSLASH = re.compile(
    r"\\++(?:u(000[1-9a-f][0-9a-f]{4}|0010[0-9a-f]{4})"  # \U of Python
    r"|u(d[89ab][0-9a-f]{2})\\++u(d[c-f][0-9a-f]{2})"
    r"|u([0-9a-f]{4})|x([0-9a-f]{2}))?"
)
_QUOTES = re.compile(r"['\"\\]++|[ßﬀ-ﬆ]")
_LIKE = str.maketrans("\n\r\t\b\f\v\a+", "nrtbfva ")
_BASE64_BREAKS = re.compile(r"[\r\n\t ]++|\\++[rn]?")
_HEX_BREAKS = re.compile(r"[\r\n\t :,-]++|\\++[rnx]?|0x")
#: In JSON that was made small, with what has to be there for them: escapes of any character,
_ESCAPES = (
    (b"%", re.compile(rb"%[0-9a-f]{2}")),
    (b"&", re.compile(rb"&#|&[a-z][a-z0-9]{1,31};")),
    (b"\\u", re.compile(rb"\\u[0-9a-f]{4}")),
    (b"\\x", re.compile(rb"\\x[0-9a-f]{2}")),
)
#: and those of a letter or a digit.
_OF_LETTERS = (
    (b"%", re.compile(rb"%(?:25)*(?:3[0-9]|[46][1-9a-f]|[57][0-9a])")),
    (b"&", re.compile(rb"&(?:amp;|#0*+38;|#x0*+26;)*#")),
    (b"\\u00", re.compile(rb"\\u00(?:3[0-9]|[46][1-9a-f]|[57][0-9a])")),
    (b"\\x", re.compile(rb"\\x(?:3[0-9]|[46][1-9a-f]|[57][0-9a])")),
)


def flat(text: str) -> str:
    """Either case made one; the text keeps its length."""
    if text.isascii():
        return text.lower()
    return text.replace("İ", "i").lower().replace("ς", "σ")  # the only ones that depend on others


def has_escapes(encoded: bytes, of_letters: bool) -> bool:
    """Whether there is an escape in JSON that was made small, or one of a letter or a digit."""
    for gate, pattern in _OF_LETTERS if of_letters else _ESCAPES:
        if gate in encoded and pattern.search(encoded) is not None:
            return True
    return False


class Reading:
    """A text after a pass over it, and the places in the text before."""

    __slots__ = ("_before", "_begins", "_ends", "_outs", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._before: Reading | None = None
        self._outs: list[int] = []  # where the pieces begin here, and where the last one ends,
        self._begins: list[int] = []  # where they began before,
        self._ends: list[int] = []  # and where they ended

    def after(self, pattern: re.Pattern[str], letter: Letter) -> Reading:
        """The text with a letter in the place of every match, or none at all, or with the match
        where there is no letter for it."""
        made, pieces = Reading(""), list[str]()
        at = 0
        for match in pattern.finditer(self.text):
            put = letter(match)
            if put is None:
                continue
            begin, end = match.span()
            made._add(pieces, self.text[at:begin], at, begin)
            made._add(pieces, put, begin, end)
            at = end
        if not at:
            return self
        made._add(pieces, self.text[at:], at, len(self.text))
        made._before, made.text = self, "".join(pieces)
        return made

    def _add(self, pieces: list[str], piece: str, begin: int, end: int) -> None:
        if piece:
            if not self._outs:
                self._outs.append(0)
            pieces.append(piece)
            self._outs.append(self._outs[-1] + len(piece))
            self._begins.append(begin)
            self._ends.append(end)

    def translated(self, table: dict[int, int]) -> Reading:
        """Letter for letter."""
        made = Reading(self.text.translate(table))
        made._before = self._before
        made._outs, made._begins, made._ends = self._outs, self._begins, self._ends
        return made

    def begin_of(self, at: int) -> int:
        """Where a letter begins in the text that was there first; its end for what is behind it."""
        here: Reading | None = self
        while here is not None and here._before is not None:
            if at >= len(here.text):
                at = len(here._before.text)
            else:
                piece = bisect_right(here._outs, at) - 1
                at = min(here._begins[piece] + at - here._outs[piece], here._ends[piece])
            here = here._before
        return at

    def end_of(self, at: int) -> int:
        """Where a letter ends there; 0 for what is before the first."""
        here: Reading | None = self
        while here is not None and here._before is not None and at >= 0:
            piece = bisect_right(here._outs, at) - 1
            begin, end = here._begins[piece], here._ends[piece]
            at = max(end - (here._outs[piece + 1] - 1 - at), begin + 1) - 1
            here = here._before
        return at + 1


def undone(text: str) -> Reading:
    """A text that was made flat, without its escapes.

    What addresses and pages have is undone before and after what programs have: JSON in an address
    as well as a page in JSON.
    """
    reading = Reading(text).after(_WEB, _of_web).after(_BACKSLASH, _of_program)
    return reading.after(_WEB, _of_web).after(_QUOTES, _of_quotes).translated(_LIKE)


def without_breaks(text: str) -> Reading:
    """For base64, which may stand in lines."""
    return Reading(text).after(_BASE64_BREAKS, _nothing)


def without_marks(text: str) -> Reading:
    """For hex, which may have something between its bytes."""
    return Reading(text).after(_HEX_BREAKS, _nothing)


def _of_web(match: re.Match[str]) -> str | None:
    percent, decimal, hexadecimal, name = match.groups()
    if percent is not None:
        return _character(percent, 16)
    if name is not None:  # behind an ampersand that was escaped may stand anything
        plain = f"&{name};" if match.start(4) > match.start() + 1 else None
        return _names().get(name, plain)
    return _character(decimal, 10) if decimal is not None else _character(hexadecimal, 16)


def _of_program(match: re.Match[str]) -> str | None:
    if match.lastindex is None:
        return ""
    rare, high, low, unicode, byte = match.groups()
    if high is not None:
        code = ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF) + 0x10000
        return _character(f"{code:x}", 16)
    return _character(rare or unicode or byte, 16)


def _of_quotes(match: re.Match[str]) -> str:
    said = match[0]
    if "'" in said or '"' in said:
        return "'"
    return "" if said[0] == "\\" else said.casefold()


def _nothing(_match: re.Match[str]) -> str:
    return ""


@lru_cache(maxsize=4096)
def _character(digits: str, base: int) -> str | None:
    code = int(digits or "0", base)
    return flat(chr(code)) if code < 0x110000 else None


@cache
def _names() -> dict[str, str]:
    """Every entity of HTML that is one character, by its name in small letters."""
    found = {name[:-1]: each for name, each in html5.items() if name[-1] == ";" and len(each) == 1}
    others = {name.lower(): each for name, each in found.items()}
    return {name: flat(found.get(name, each)) for name, each in others.items()}
