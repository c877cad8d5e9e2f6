"""The fields in the bytes of a form, as browsers make them.

Nothing here waits for anything: a form is read whole, and a large one is taken apart beside the
event loop, as every body is. What no browser sends is refused with a `ValueError`: packed, nested
and half parts, text that is not UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qsl

import msgspec
from multidict import MultiDict

HEAD_BYTES = 8 * 1024  # of one part
_PARAMETER = r';\s*([\w*-]+)=(?:"([^"]*)"|([^\s;"]+))'
_DISPOSITION = re.compile(rf"form-data(?:{_PARAMETER})*\s*", re.IGNORECASE)
_PARAMETERS = re.compile(_PARAMETER)
_ESCAPED = (("%22", '"'), ("%0D", "\r"), ("%0A", "\n"))


class Upload(msgspec.Struct, frozen=True):
    """A file that was chosen in a form."""

    name: str
    content: bytes


def pairs_in(body: bytes, most: int) -> MultiDict[str | Upload]:
    """Of `application/x-www-form-urlencoded`."""
    text = body.decode("utf-8")
    return MultiDict(parse_qsl(text, keep_blank_values=True, max_num_fields=most))


def parts_in(body: bytes, boundary: str, most: int) -> MultiDict[str | Upload]:
    """Of `multipart/form-data`."""
    fields: MultiDict[str | Upload] = MultiDict()
    for part in _parts(body, boundary.encode("ascii"), most):
        head, empty, content = part.partition(b"\r\n\r\n")
        if not empty or len(head) > HEAD_BYTES:
            raise ValueError("a part without a head")
        named = _named(head.decode("utf-8"))
        file = named.get("filename")
        value = content.decode("utf-8") if file is None else Upload(file, content)
        fields.add(named.get("name", ""), value)
    return fields


def _parts(body: bytes, boundary: bytes, most: int) -> Iterator[bytes]:
    before, *parts, last = (b"\r\n" + body).split(b"\r\n--" + boundary, most + 1)
    if before or not last.startswith(b"--"):
        raise ValueError("no form, or too many fields")
    for part in parts:
        if not part.startswith(b"\r\n"):
            raise ValueError("a part without a head")
        yield part[2:]


def _named(head: str) -> dict[str, str]:
    """What the head of a part says of it."""
    found: dict[str, str] = {}
    for line in head.split("\r\n"):
        name, _, value = line.partition(":")
        match name.lower():
            case "content-encoding" | "content-transfer-encoding":
                raise ValueError("a packed part")
            case "content-type" if value.strip().lower().startswith("multipart/"):
                raise ValueError("a part with parts")
            case "content-disposition":
                found |= _parameters(value.strip())
    return found


def _parameters(text: str) -> dict[str, str]:
    if not _DISPOSITION.fullmatch(text):
        raise ValueError("not a part of a form")
    return {one[1].lower(): _plain(one[2] or one[3] or "") for one in _PARAMETERS.finditer(text)}


def _plain(text: str) -> str:
    for escaped, letter in _ESCAPED:
        text = text.replace(escaped, letter)
    return text
