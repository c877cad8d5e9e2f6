"""A secret in every form in which it is looked for: one row for each in `work.secrets.forms`."""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from html.entities import html5
from typing import NamedTuple
from urllib.parse import quote, quote_plus

from anabranch.work.secrets.forms import INSIDE, fold


class Form(NamedTuple):
    name: str
    write: Callable[[str], Iterator[str]]


def _all_percent(secret: str) -> str:
    return "".join(f"%{byte:02x}" for byte in _raw(secret))


def _all_escaped(secret: str) -> str:
    units = secret.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _all_html(secret: str) -> str:
    return "".join(f"&#{ord(letter)};" for letter in secret)


def _all_html_hex(secret: str) -> str:
    return "".join(f"&#x{ord(letter):X};" for letter in secret)


def _but_letters(text: str, write: Callable[[str], str]) -> str:
    """Only what is no letter or digit is escaped."""
    return re.sub(r"[^A-Za-z0-9]", lambda match: write(match[0]), text)


def _named(letter: str) -> str:
    names = sorted(name for name, each in html5.items() if each == letter and name[-1] == ";")
    return f"&{names[-1]}" if names else letter


def _padded(letter: str) -> str:
    return f"&#{ord(letter):05};"


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _base64s(text: str) -> Iterator[str]:
    for shift in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            written = encode(b"u" * shift + _raw(text) + b":tail").decode()
            yield written
            yield written.rstrip("=")
        yield encode(b"u" * shift + _raw(text)).decode()


def _base64_lines(text: str) -> Iterator[str]:
    for before in range(0, 60, 7):
        whole = base64.b64encode(b"u" * before + _raw(text) + b"." * 40).decode()
        for end in ("\n", "\r\n", "\\n"):
            yield end.join(whole[at : at + 64] for at in range(0, len(whole), 64))


def _hexes(text: str) -> Iterator[str]:
    written = _raw(text).hex()
    yield from (written, written.upper())
    yield from (_raw(text).hex(mark) for mark in " :-")
    yield "".join(f"\\x{byte:02x}" for byte in _raw(text))
    yield ", ".join(f"0x{byte:02X}" for byte in _raw(text))
    yield "\n".join(written[at : at + 60] for at in range(0, len(written), 60))


def _cases(text: str) -> Iterator[str]:
    """Also what CEL's `upperAscii` and `lowerAscii` make of it."""
    yield from (text.upper(), text.lower(), text.title(), text.swapcase(), fold(text))


def _urls(text: str) -> Iterator[str]:
    raw = _raw(text)
    yield from (quote(raw), quote(raw, safe=""), quote(raw, safe="").lower(), quote_plus(raw))
    yield from (_all_percent(text), _all_percent(text).upper())
    yield from (quote(quote(raw)), _all_percent(text[:1]) + quote(text[1:]))
    yield _but_letters(text, _all_percent)


def _jsons(text: str) -> Iterator[str]:
    once = json.dumps(text, ensure_ascii=False)[1:-1]
    yield from (once, json.dumps(text)[1:-1], json.dumps(once)[1:-1], _all_escaped(text))
    yield json.dumps(json.dumps(json.dumps(text)))
    yield from (_but_letters(text, _all_escaped), json.dumps(_but_letters(text, _all_escaped)))


def _htmls(text: str) -> Iterator[str]:
    yield from (html.escape(text), html.escape(text, quote=False), _all_html(text))
    yield text.replace("&", "&amp;").replace("'", "&apos;").replace('"', "&quot;")
    yield from (text.replace("'", "&#x27;"), text.replace("'", "&#039;"), _all_html_hex(text))
    yield from (_but_letters(text, _all_html), _but_letters(text, _all_html_hex))
    yield from (_but_letters(text, _named), _but_letters(text, _padded))
    yield html.escape(html.escape(text))


def _shells(text: str) -> Iterator[str]:
    yield from (shlex.quote(text), text.replace("'", "'\\''"))
    yield re.sub(r"([^A-Za-z0-9_.-])", r"\\\1", text)


def _reprs(text: str) -> Iterator[str]:
    yield from (repr(text), ascii(text), repr([text]), repr(repr(text)), repr(_raw(text)))


def _doubled(text: str) -> Iterator[str]:
    yield from (text.replace("'", "''"), text.replace('"', '""'))


def _echoes(text: str) -> Iterator[str]:
    yield _raw(text).decode("latin-1")
    yield _raw(text).decode("cp1252", "replace")
    yield text.encode("latin-1", "replace").decode("utf-8", "replace")
    yield text.encode("ascii", "replace").decode()
    yield json.dumps(_raw(text).decode("latin-1"))


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if len(line.strip()) >= INSIDE and not line.startswith("-----"):
            yield line.strip()


FORMS: tuple[Form, ...] = (
    Form("plain", lambda text: iter((text,))),
    Form("json", _jsons),
    Form("url", _urls),
    Form("html and xml", _htmls),
    Form("shell", _shells),
    Form("python repr", _reprs),
    Form("sql and csv", _doubled),
    Form("case", _cases),
    Form("latin-1", _echoes),
    Form("base64", _base64s),
    Form("base64 in lines", _base64_lines),
    Form("hex", _hexes),
    Form("one line of several", _lines),
)


def written_in_every_form(secret: str) -> Mapping[str, list[str]]:
    return {form.name: list(form.write(secret)) for form in FORMS}
