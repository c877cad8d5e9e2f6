"""A look over any value before its fields are read: how deep, how much, and whether it is JSON.

It walks without recursion and stops at the first limit, so that no document, however hostile,
takes long or ends in a crash.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import Any

from anabranch.market.documents.problems import Found, below, shown
from anabranch.market.passports import PASSPORT, REVOCATION

DEPTH_MAX = 64  # as deep as canonical JSON goes
VALUES_MAX = 100_000
#: Of kinds that anyone with a key may send to a node, which looks at them before it knows whom they
#: are of: a hundred values take it a millisecond. A request has its input twice. A result may have
#: as many as any document: it answers a request, and is read beside the event loop.
VALUES_OF: Mapping[str, int] = {
    PASSPORT: 1_000,
    REVOCATION: 100,
    "capability-advertisement.v1": 5_000,
    "service-order.dispatch.request.v1": 20_000,
    "service-offer.v1": 2_000,
    "service-offer-relay.v1": 2_020,
    "agora-record.v1": 2_100,
    "workflow.fanout.request": 10_000,
    "workflow-template.fetch.request": 100,
    "workflow-template.fetch.response": 20_000,
}
TEXT_MAX = 8 * 1024 * 1024  # characters of all texts and keys together
WHOLE_MAX = 2**53 - 1  # beyond it not every reader knows the difference of one

#: The place of a value: that of its parent and its key there; () for the whole.
_Place = tuple[Any, ...]

_HALF = re.compile("[\ud800-\udfff]")


def is_within_limits(document: Any, found: Found, kind: str | None = None) -> bool:
    """Whether the fields can be read at all; what is wrong is added to `found`."""
    values = texts = 0
    most = VALUES_OF.get(kind or _named(document), VALUES_MAX)
    left: list[tuple[Any, _Place, int]] = [(document, (), 0)]
    before = len(found)
    while left:
        value, place, depth = left.pop()
        values += 1
        parts = len(value) if isinstance(value, dict | list) else 0
        if values + len(left) + parts > most:
            found.add("", "too-many-values", f"more than {most:,} values; send fewer")
            return False
        if isinstance(value, str):
            texts += len(value)
        elif isinstance(value, dict | list):
            if depth >= DEPTH_MAX:
                found.add("", "too-deep", f"nested more than {DEPTH_MAX} deep; flatten it")
                return False
            if isinstance(value, dict):
                texts += _keys(value, place, found)
            left.extend(_parts(value, place, depth + 1))
        _check_scalar(value, place, found)
        if texts > TEXT_MAX:
            found.add("", "too-large", f"more than {TEXT_MAX:,} characters; send less at once")
            return False
    return len(found) == before


def _named(document: Any) -> str:
    named = document.get("schema") if isinstance(document, dict) else None
    return named if isinstance(named, str) else ""


def _path(place: _Place) -> str:
    """The pointer to a place, made only where something is wrong there."""
    path = ""
    keys = []
    while place:
        place, key = place
        keys.append(key)
    for key in reversed(keys):
        path = below(path, _key(key))
    return path


def _keys(value: dict[Any, Any], place: _Place, found: Found) -> int:
    total = 0
    for key in value:
        if not isinstance(key, str):
            found.add(_path(place), "not-json", f"the key {shown(key)} is no text; quote it")
        elif not key.isascii() and _HALF.search(key):
            found.add(_path(place), "half-character", "a key has half of a surrogate pair in it")
        else:
            total += len(key)
    return total


def _parts(value: Any, place: _Place, depth: int) -> list[tuple[Any, _Place, int]]:
    """The parts of a list or an object, last first: they are taken from the end."""
    parts = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    return [(part, (place, key), depth) for key, part in reversed(parts)]


def _key(key: Any) -> str:
    return key[:80] if isinstance(key, str) else str(shown(key))


def _check_scalar(value: Any, place: _Place, found: Found) -> None:
    match value:
        case None | bool() | dict() | list():
            return
        case str():
            if not value.isascii() and _HALF.search(value):
                found.add(
                    _path(place), "half-character", "half of a surrogate pair; write the character"
                )
        case int():
            if abs(value) > WHOLE_MAX:
                found.add(
                    _path(place), "bad-number", f"{shown(value)} is beyond 2^53 - 1; write text"
                )
        case float():
            if not isfinite(value):
                found.add(
                    _path(place), "bad-number", f"{value} is no JSON number; write a finite one"
                )
        case _:
            kind = type(value).__name__
            found.add(
                _path(place), "not-json", f"JSON has no {kind}; write text, a list or an object"
            )
