"""How a secret may be written: what is looked for where one may have been repeated.

| form | what makes it |
|---|---|
| plain | the text itself |
| json | JSON, also inside JSON, with or without `\\u` for what is not ASCII |
| url | percent signs for some or all characters, `+` for a blank |
| html and xml | entities, by name or by number, for some or all characters |
| shell | quotes and backslashes |
| python repr | also of bytes, also inside another text |
| sql and csv | doubled quotes |
| case | either case, also what CEL's `upperAscii` and `lowerAscii` make of it |
| latin-1 | UTF-8 read as Latin-1 or the other way round, question marks for what is not ASCII |
| base64 | both alphabets, with and without padding, wherever the secret stands in it |
| base64 in lines | the same in lines of 60 letters or more |
| hex | either case, also with something between the bytes, also in lines |
| one line of several | of a secret of several lines, such as a key in a file |

No pattern is made of a secret: the escapes of both are undone (`undoing.py`), and one text is
looked for in the other. Probes, short texts one of which is in every text that has the secret,
spare most texts even that. Either case is one: probes are written small, and the text is folded
before it is looked at. Nobody finds a secret that was reversed, folded into short lines, split,
encrypted, hashed or compressed.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple

import msgspec

from anabranch.work.secrets.undoing import (
    Reading,
    Span,
    flat,
    has_escapes,
    undone,
    without_breaks,
    without_marks,
)

INSIDE = 8  # characters: a shorter secret is too easily a part of other text
SHORTEST = 4  # characters: a shorter one is not looked for at all
_RUN = 4  # letters of a probe, at least
_PIECE = 1024  # characters: of a longer secret every piece is looked for, too
_SPELLED_MAX = 16 * 1024  # characters: a longer secret is not looked for in base64 and hex
_LINE = 30  # letters: of twice as many in base64 or hex, at most one line break is among them
_LETTERS = re.compile(r"[a-z0-9]+")  # the same in all these languages
_FOLD = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_URL_SAFE = str.maketrans("+/", "-_")
_FRAME = re.compile(r"-----(?:BEGIN|END) [A-Z0-9 ]+-----")  # of PEM: public, whatever it frames
_GATES = (b"\\\\x", b"0x")
#: The beginning of an escape that the text behind a secret may end, and the end of one that the
#: text before it may begin.
_BEGUN = re.compile(r"(?:%[0-9a-f]?|&#?x?[0-9a-f]{0,5})$")
_ENDED = re.compile(r"[ux]?[0-9a-f]{1,8}|[#a-z0-9]{0,9};")
_EATEN = 10  # characters, at most
_encode = msgspec.json.Encoder().encode


class Sought(NamedTuple):
    """One text that is looked for."""

    plain: str
    undone: str
    length: int  # characters that a find stands for, at least
    opens: bool  # whether what escapes its first letter is a part of it,
    closes: bool  # and what stands behind its last
    tails: tuple[tuple[str, str], ...]  # the rest of it, by what an escape before it may swallow

    def spans_in(self, seen: Seen) -> Iterator[Span]:
        for at in _places(self.plain, seen.flat):
            yield at, at + len(self.plain)
        for at in _places(self.undone, seen.undone.text, 1 if self.length else 0):
            if span := self._span(seen.undone, at, at + len(self.undone)):
                yield span
        for head, tail in self.tails:
            for at in _places(tail, seen.undone.text):
                begin = seen.undone.end_of(at - 1)
                if seen.flat.endswith(head, 0, begin):
                    yield begin - len(head), seen.undone.end_of(at + len(tail) - 1)

    def _span(self, reading: Reading, begin: int, end: int) -> Span | None:
        """Where it stands, with the backslashes and quotes around it; None where it is only like
        the secret because so much of that is undone."""
        first, last = reading.end_of(begin - 1), reading.begin_of(end)
        if last - first < self.length:
            return None
        return (
            first if self.opens else reading.begin_of(begin),
            last if self.closes else reading.end_of(end - 1),
        )


class Encoded(NamedTuple):
    """The letters of a secret in base64 or hex, and probes as JSON has them."""

    letters: frozenset[str]
    probes: frozenset[bytes]


class Traces(NamedTuple):
    """What is looked for, and the probes as JSON has them."""

    texts: tuple[Sought, ...]
    base64: Encoded
    hex: Encoded
    plain: frozenset[bytes]  # probes of the texts, where none of their letters is escaped
    of_letters: bool  # whether it takes the escape of a letter to miss them

    @property
    def probes(self) -> frozenset[bytes]:
        return self.plain | self.base64.probes | self.hex.probes

    def may_be_in(self, encoded: bytes) -> bool:
        return any(probe in encoded for probe in self.probes) or self.may_be_escaped(encoded)

    def may_be_escaped(self, encoded: bytes) -> bool:
        return bool(self.texts) and has_escapes(encoded, self.of_letters)


class Seen:
    """A text as it is looked at; every reading is made once, and where a secret needs it."""

    def __init__(self, text: str, encoded: bytes) -> None:
        self._text = text
        self.encoded = encoded

    @cached_property
    def flat(self) -> str:
        return flat(self._text)

    @cached_property
    def undone(self) -> Reading:
        return undone(self.flat)

    @cached_property
    def _without_breaks(self) -> Reading:
        return without_breaks(self.flat)

    @cached_property
    def _without_marks(self) -> Reading:
        return without_marks(self.flat)

    def spans_of(self, traces: Traces) -> Iterator[Span]:
        for text in traces.texts:
            yield from text.spans_in(self)
        if any(probe in self.encoded for probe in traces.base64.probes):
            yield from _spans(traces.base64.letters, self._without_breaks)
        if any(probe in self.encoded for probe in traces.hex.probes):
            yield from _spans(traces.hex.letters, self._without_marks)


def _spans(sought: frozenset[str], reading: Reading) -> Iterator[Span]:
    for letters in sought:
        for at in _places(letters, reading.text):
            yield reading.begin_of(at), reading.end_of(at + len(letters) - 1)


def _places(sought: str, text: str, step: int = 0) -> Iterator[int]:
    at = text.find(sought) if sought else -1
    while at >= 0:
        yield at
        at = text.find(sought, at + (step or len(sought)))


def gate_of(probe: bytes) -> bytes:
    """What has to be there for a probe to be there: most texts have none of these."""
    return next((gate for gate in _GATES if gate in probe), b"")


def fold(text: str) -> str:
    """A to Z made small, and nothing else: the text keeps its length."""
    return text.translate(_FOLD)


@lru_cache(maxsize=512)
def traces_of(secret: str, inside: int = INSIDE) -> Traces:
    """What to look for; nothing for a secret that is too short to be found inside a text."""
    texts: dict[str, Sought] = {}
    probes: set[bytes] = set()
    parts = parts_of(secret, inside)
    of_letters = True
    for part in parts:
        for text in _written_otherwise(part):
            if (plain := flat(text)) not in texts and len(text) >= inside:
                texts[plain] = _sought(plain)
                found = set(_probes(text))
                of_letters &= all(_LETTERS.fullmatch(probe.decode()) for probe in found)
                probes |= found
    spelled = inside <= len(secret) <= _SPELLED_MAX
    nothing = Encoded(frozenset(), frozenset())
    return Traces(
        tuple(texts.values()),
        _in_base64(secret) if spelled else nothing,
        _in_hex(secret) if spelled else nothing,
        frozenset(probes),
        of_letters,
    )


def parts_of(secret: str, inside: int = INSIDE) -> list[str]:
    """The secret, each of its lines, and the pieces of what is long."""
    whole = [secret] if len(secret) <= _PIECE else []
    lines = [line.strip() for line in secret.splitlines()]
    if len(lines) < 2 and whole:
        lines = []
    for line in lines:
        if not _FRAME.fullmatch(line):
            whole += [line[at : at + _PIECE] for at in range(0, max(1, len(line)), _PIECE)]
    return [part for part in dict.fromkeys(whole) if len(part) >= inside]


# -- character by character ------------------------------------------------------------------


def _sought(plain: str) -> Sought:
    whole = undone(plain).text
    certain = _BEGUN.sub("", whole)
    sought = certain if 2 * len(certain) >= len(plain) else whole
    tails = [
        (plain[:at], rest)
        for at in range(1, min(_EATEN, len(plain) // 2) + 1)
        if _ENDED.fullmatch(plain[:at]) and len(rest := undone(plain[at:]).text) >= _RUN
    ]
    like = sought == whole and len(sought) < min(len(plain), INSIDE)
    return Sought(
        plain,
        sought,
        len(plain) if like else 0,
        not plain[0].isalnum(),
        plain[-1] in "\\'\"",
        tuple(tails) if sought != plain or not plain.isalnum() else (),
    )


def _written_otherwise(text: str) -> Iterator[str]:
    """In either case, and as those have it who take UTF-8 for Latin-1 or Windows-1252, or the other
    way round, or have no letter for it. A byte that is escaped stands for the letter of Latin-1."""
    yield text
    if text.isascii():
        return
    for each in (text, text.upper(), text.lower(), text.casefold()):
        raw = each.encode("utf-8", "surrogatepass")
        single = each.encode("latin-1", "replace")
        read = (each, raw.decode("cp1252", "replace"), single.decode("utf-8", "replace"))
        for said in (*read, each.encode("ascii", "replace").decode()):
            yield said
            yield said.encode("utf-8", "surrogatepass").decode("latin-1")


def _probes(text: str) -> Iterator[bytes]:
    """The longest part that is written the same way everywhere, or all ways to begin."""
    longest = max(_LETTERS.findall(fold(text)), key=len, default="")
    if len(longest) >= _RUN:
        yield longest.encode()
        return
    first = text[0]
    for form in {first, first.upper(), first.lower(), "+" if first == " " else first}:
        yield fold(_json(form)[1:-1]).encode("utf-8", "replace")


def _json(text: str) -> str:
    return _encode(text.encode("utf-8", "replace").decode()).decode()


# -- the secret as bytes ---------------------------------------------------------------------


def _in_base64(secret: str) -> Encoded:
    letters = frozenset(_inside_base64(secret))
    return Encoded(letters, frozenset(half for each in letters for half in _halves(each)))


def _inside_base64(secret: str) -> set[str]:
    """What of a secret is certain in base64, for each of the three ways it may be aligned."""
    raw = secret.encode("utf-8", "surrogatepass")
    found = set()
    for shift in range(3):
        whole = (shift + len(raw)) * 8 // 6  # letters that no byte after the secret changes
        spoilt = (0, 2, 3)[shift]  # letters that bytes before it share
        letters = base64.b64encode(b"\0" * shift + raw).decode()[spoilt:whole]
        found |= {fold(letters), fold(letters.translate(_URL_SAFE))}
    return found


def _in_hex(secret: str) -> Encoded:
    raw = secret.encode("utf-8", "surrogatepass")
    pairs = [f"{byte:02x}" for byte in raw]
    probes = _halves("".join(pairs))
    for mark in (" ", ":", "-", "\\x", ", 0x", ",0x"):
        probes.add(_encode(mark.join(pairs[:4]))[1:-1])
    return Encoded(frozenset({"".join(pairs)}), frozenset(probes))


def _halves(letters: str) -> set[bytes]:
    """Two parts next to each other: a line break can be in one of them only."""
    middle = min(_LINE, len(letters) // 2)
    return {letters[:middle].encode(), letters[middle : 2 * middle].encode()}
