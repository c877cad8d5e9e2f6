"""The file of `anabranch export`: JSON lines, compressed with gzip.

    {"anabranch": "export", "version": 1, "made_at": …, "made_by": "anabranch 0.1.0"}
    {"definition": {…}}                              before the first run of it
    {"run": {…}}                                     its index card
    {"hold": {…}, "size": 70000}, {"part": "…"} …    a payload it needs, in parts of base64
    {"row": [first_seq, count, at], "events": […]}   the rows of its log
    {"end": "…"}                                     what the hash of the log must be
    {"finished": 1}                                  how many runs there were

Nothing of it is large: a value of any size comes in parts, and a line beyond `LINE_BYTES` is no
line of such a file.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from anabranch.store.ports import Definition, Head, Hold, Record

FORMAT = "export"
VERSION = 1
PART_BYTES = 512 * 1024  # of a payload, before base64
LINE_BYTES = 64 * 1024 * 1024  # a row of the log is what one turn recorded of a run


class Header(msgspec.Struct, frozen=True, kw_only=True):
    anabranch: str
    version: int
    made_at: int = 0
    made_by: str = ""


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Any line but the first: exactly one of the fields that are None by default."""

    definition: Definition | None = None
    run: Head | None = None
    hold: Hold | None = None
    part: bytes | None = None
    row: tuple[int, int, int] | None = None  # first_seq, count, at
    end: str | None = None
    finished: int | None = None
    events: msgspec.Raw = msgspec.Raw(b"")  # of a row
    size: int = 0  # of the payload that is held; -1 where it is gone


class LogHash:
    """One number for a whole history: the rows in order, with their instants."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, record: Record) -> None:
        events = hashlib.sha256(record.events).hexdigest()
        row = f"{record.first_seq} {record.count} {record.at} {events}\n"
        self._hash.update(row.encode())

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def encoded(line: Header | Line) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def shown(value: Any) -> str:
    return f"{value!r:.80}"
