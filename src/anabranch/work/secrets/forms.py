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

Every form is a pattern for the text, and probes: short texts, one of which is in every text that
has the secret. Letters A to Z are looked for in either case, so patterns and probes are written
small, and the text is folded before it is looked at. Nobody finds a secret that was reversed,
folded into short lines, split, encrypted, hashed or compressed.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, quote_plus

import msgspec

INSIDE = 8  # characters: a shorter secret is too easily a part of other text
SHORTEST = 4  # characters: a shorter one is not looked for at all
_RUN = 4  # letters of a probe, at least
_PIECE = 1024  # characters of one pattern; a longer secret is looked for piece by piece
_SPELLED_MAX = 16 * 1024  # characters: of a longer secret only the plain lines are looked for
_FIRSTS = 256  # characters: up to here every spelling of the first letter begins a pattern
_LINE = 30  # letters: of twice as many in base64 or hex, at most one line break is among them
_PLAIN = re.compile(r"[a-z0-9_.-]+")  # the same in all these languages
_FOLD = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_URL_SAFE = str.maketrans("+/", "-_")
_BREAKS = r"(?:[\r\n\t ]|\\{1,8}[rn]){0,6}"
_BETWEEN = r"(?:[\r\n\t :,-]|\\{1,8}[rnx]|0x){0,6}"
_FRAME = re.compile(r"-----(?:BEGIN|END) [A-Z0-9 ]+-----")  # of PEM: public, whatever it frames
_GATES = (b"%", b"&#", b"\\\\x", b"0x", b"u00")
_ESCAPED = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}  # in HTML
_encode = msgspec.json.Encoder().encode


class Traces(NamedTuple):
    """What is looked for: alternatives of a pattern, and the probes as JSON has them."""

    patterns: tuple[str, ...]
    probes: frozenset[bytes]


def gate_of(probe: bytes) -> bytes:
    """What has to be there for a probe to be there: most texts have none of these."""
    return next((gate for gate in _GATES if gate in probe), b"")


def fold(text: str) -> str:
    """A to Z made small, and nothing else: the text keeps its length."""
    return text.translate(_FOLD)


@lru_cache(maxsize=512)
def traces_of(secret: str, inside: int = INSIDE) -> Traces:
    """What to look for; nothing for a secret that is too short to be found inside a text."""
    patterns: list[str] = []
    probes: set[bytes] = set()
    for part in parts_of(secret, inside):
        patterns += _spelled_out(part)
        probes.update(_probes(part))
    if inside <= len(secret) <= _SPELLED_MAX:
        for made, found in (_in_base64(secret), _in_hex(secret), _written_out(secret)):
            patterns += made
            probes |= found
    return Traces(tuple(dict.fromkeys(patterns)), frozenset(probes))


def parts_of(secret: str, inside: int = INSIDE) -> list[str]:
    """The secret, each of its lines, and the pieces of what is too long for one pattern."""
    whole = [secret, *_other_case(secret)] if len(secret) <= _PIECE else []
    lines = [line.strip() for line in secret.splitlines()]
    if len(lines) < 2 and whole:
        lines = []
    for line in lines:
        if not _FRAME.fullmatch(line):
            whole += [line[at : at + _PIECE] for at in range(0, max(1, len(line)), _PIECE)]
    return [part for part in dict.fromkeys(whole) if len(part) >= inside]


def _other_case(secret: str) -> list[str]:
    """Letters that become several in the other case, such as ß; the others are spelled both."""
    made = (secret.upper(), secret.lower(), secret.casefold())
    return [each for each in made if len(each) != len(secret)]


# -- character by character ------------------------------------------------------------------


def _spelled_out(secret: str) -> list[str]:
    """The secret with every character as any language may write it, also in mixtures."""
    if len(secret) > _SPELLED_MAX or _PLAIN.fullmatch(folded := fold(secret)):
        return [re.escape(fold(secret))]
    rest = "".join(map(_letter, folded[1:]))
    if len(secret) > _FIRSTS:
        return [_letter(folded[0]) + rest]
    return [re.escape(each) + rest for each in sorted(_spelled(folded[0]), key=len, reverse=True)]


def _letter(letter: str) -> str:
    if _PLAIN.fullmatch(letter):
        return re.escape(letter)
    spellings = sorted(map(re.escape, _spelled(letter)), key=len, reverse=True)
    return rf"(?:\\{{0,8}}(?:{'|'.join(spellings)}))"  # JSON inside JSON doubles every backslash


@lru_cache(maxsize=4096)
def _spelled(letter: str) -> frozenset[str]:
    """One character in a URL, a form, JSON, HTML, XML, a shell, SQL, CSV and Python's `repr`."""
    if _PLAIN.fullmatch(letter):
        return frozenset({letter})
    code = ord(letter)
    forms = {
        *(json.dumps(letter)[1:-1], json.dumps(letter, ensure_ascii=False)[1:-1]),
        *(repr(letter)[1:-1], ascii(letter)[1:-1], f"\\u{code:04x}", f"\\x{code:02x}"),
        *(
            _ESCAPED.get(letter, letter),
            f"&#{code};",
            f"&#x{code:x};",
            f"&#{code:03};",
            f"&#x{code:02x};",
        ),
        *(_NAMED.get(letter, letter), letter),
    }
    if letter in "'\"":  # closed, escaped and opened again by a shell; doubled in SQL and CSV
        forms |= {"'\\''", "'\"'\"'", letter * 2}
    for each in {letter, letter.upper(), letter.lower()}:
        raw = each.encode("utf-8", "surrogatepass")
        forms |= {each, quote(raw, safe=""), quote_plus(raw)}
        if not each.isascii():
            forms |= _echoed(each, raw)
    return frozenset(map(fold, forms))


_NAMED = {"'": "&apos;", '"': "&quot;", "<": "&lt;", ">": "&gt;", "&": "&amp;"}


def _echoed(letter: str, raw: bytes) -> set[str]:
    """UTF-8 read as Latin-1 or Windows-1252, Latin-1 read as UTF-8, and either in a URL."""
    found = {raw.decode("latin-1"), raw.decode("cp1252", "replace")}
    found |= {"".join(f"\\x{byte:02x}" for byte in raw), "\ufffd", "?"}
    found |= {_encode(each).decode()[1:-1] for each in tuple(found)}
    found |= {json.dumps(raw.decode("latin-1"))[1:-1]}
    if ord(letter) < 256:
        found.add(f"%{ord(letter):02x}")
    return found


def _probes(secret: str) -> Iterator[bytes]:
    """The longest part that is written the same way everywhere, or all ways to begin."""
    folded = fold(secret)
    longest = max(_PLAIN.findall(folded), key=len, default="")
    if len(longest) >= _RUN:
        yield longest.encode()
        return
    for form in _spelled(folded[0]):  # whatever begins like it has to be looked at
        yield fold(_encode(form)[1:-1].decode()).encode()


# -- the secret as bytes ---------------------------------------------------------------------


def _in_base64(secret: str) -> tuple[list[str], set[bytes]]:
    patterns, probes = [], set()
    for letters in _inside_base64(secret):
        patterns.append(_BREAKS.join(map(re.escape, letters)))
        probes |= _halves(letters)
    return patterns, probes


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


def _in_hex(secret: str) -> tuple[list[str], set[bytes]]:
    raw = secret.encode("utf-8", "surrogatepass")
    pairs = [f"{byte:02x}" for byte in raw]
    probes = _halves("".join(pairs))
    for mark in (" ", ":", "-", "\\x", ", 0x", ",0x"):
        probes.add(_encode(mark.join(pairs[:4]))[1:-1])
    return [_BETWEEN.join(pairs)], probes


def _halves(letters: str) -> set[bytes]:
    """Two parts next to each other: a line break can be in one of them only."""
    middle = min(_LINE, len(letters) // 2)
    return {letters[:middle].encode(), letters[middle : 2 * middle].encode()}


def _written_out(secret: str) -> tuple[list[str], set[bytes]]:
    """Every character in one escape, also those that need none."""
    patterns, probes = [], set()
    for write in (_all_percent, _all_escaped, _all_html, _all_html_hex):
        text = fold(write(secret))
        escaped = re.escape(text).replace(r"\\u", r"\\{1,8}u")
        patterns.append(escaped)
        first = 1 if write is _all_escaped else _RUN  # nobody knows how many backslashes there are
        probes.add(fold(write(secret[:first])).lstrip("\\")[: 5 * first].encode())
    return patterns, probes


def _all_percent(secret: str) -> str:
    return "".join(f"%{byte:02x}" for byte in secret.encode("utf-8", "surrogatepass"))


def _all_escaped(secret: str) -> str:
    units = secret.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _all_html(secret: str) -> str:
    return "".join(f"&#{ord(letter)};" for letter in secret)


def _all_html_hex(secret: str) -> str:
    return "".join(f"&#x{ord(letter):x};" for letter in secret)
