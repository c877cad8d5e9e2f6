"""Check a document: its form, its fields, and what they mean together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.market.documents.kinds import kind_of, shape_of
from anabranch.market.documents.limits import DEPTH_MAX, TEXT_MAX, VALUES_MAX, is_within_limits
from anabranch.market.documents.problems import (
    DocumentProblem,
    Found,
    InvalidDocument,
    below,
    shown,
)
from anabranch.market.passports import instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: An instant: milliseconds since the epoch, an aware datetime, or an RFC 3339 text.
At = int | datetime | str


def check(
    document: Any, *, at: At | None = None, kind: str | None = None, draft: bool = False
) -> list[DocumentProblem]:
    """Every problem of a document; an empty list means that it can be taken.

    `at` also asks what is expired or not valid yet at that instant. `kind` says which document it
    must be; without it the document says so itself. A `draft` may come without what the host fills
    in: the signature, and the buyer of an order. Bytes are read as JSON text.
    """
    found = Found(moment_of(at), draft=draft)
    if isinstance(document, bytes | bytearray):
        document = read_document(bytes(document), found, "document.json")
        if len(found):
            return found.problems()
    _check(document, kind, found)
    return found.problems()


def _check(document: Any, kind: str | None, found: Found) -> str:
    """The kind that it was checked as; "" where there is none."""
    if not is_within_limits(document, found, kind):
        return ""
    if not isinstance(document, dict):
        found.add("", "not-an-object", f"{shown(document)} is here; a document is an object")
        return ""
    named = kind if kind is not None else kind_of(document, found)
    shape = shape_of(named, found) if named else None
    if shape is None:
        return ""
    shape.check(document, "", found)
    return named


class CheckedDocument(msgspec.Struct, frozen=True):
    """One document of a text: where it stands, which kind it is ("" if none), and its problems."""

    path: str
    kind: str
    problems: list[DocumentProblem]


def check_text(
    data: bytes,
    file: str,
    *,
    at: At | None = None,
    kind: str | None = None,
    draft: bool = False,
) -> list[CheckedDocument]:
    """Every document of a text: JSON or YAML, one document or a list of them."""
    moment, found = moment_of(at), Found()
    value = read_document(data, found, file)
    if not len(found) and isinstance(value, list) and not value:
        found.add("", "empty", "the list is empty; write a document into it")
    if len(found):
        return [CheckedDocument("", "", found.problems())]
    if not isinstance(value, list):
        return [_checked("", value, moment, kind, draft)]
    return [
        _checked(below("", position), each, moment, kind, draft)
        for position, each in enumerate(value)
    ]


def _checked(
    path: str, document: Any, at: int | None, kind: str | None, draft: bool
) -> CheckedDocument:
    found = Found(at, draft=draft)
    named = _check(document, kind, found)
    problems = [msgspec.structs.replace(one, path=path + one.path) for one in found.problems()]
    return CheckedDocument(path, named, problems)


def require(document: Any, kind: str, *, at: At | None = None, draft: bool = False) -> None:
    """Raises `InvalidDocument`, an `InputError`, with the first problems in its message."""
    problems = check(document, at=at, kind=kind, draft=draft)
    if problems:
        raise InvalidDocument(kind, problems)


def read_document(data: bytes, found: Found, file: str) -> Any:
    """The value of a text: JSON, or also YAML where the file is not called `.json`.

    What is wrong with the text is added to `found`."""
    from anabranch.dialects.nodes import plain  # with the readers of YAML, which values need not
    from anabranch.dialects.reading import SourceLimits
    from anabranch.dialects.source import read_source

    limits = SourceLimits(TEXT_MAX, DEPTH_MAX, VALUES_MAX)
    read = read_source(data, file=file, limits=limits)
    for problem in read.problems:
        hint = f"; {problem.hint}" if problem.hint else ""
        where = f"line {problem.position.line}, column {problem.position.column}"
        found.add("", problem.code, f"{where}: {problem.message}{hint}")
    return None if read.root is None else plain(read.root)


def moment_of(at: At | None) -> int | None:
    """The instant in milliseconds since the epoch."""
    match at:
        case None:
            return None
        case bool():
            raise InputError("`at` is an instant, not true or false")
        case int():
            return at
        case datetime():
            if at.tzinfo is None:
                raise InputError("`at` is a datetime without a time zone; give it one")
            return (at - _EPOCH) // timedelta(milliseconds=1)
    return instant(at, "at")
