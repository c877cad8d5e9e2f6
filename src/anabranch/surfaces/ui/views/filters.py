"""The filter of the list of runs: what stands in the address is what is asked of the store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec
from multidict import MultiDict, MultiMapping

from anabranch.errors import InputError
from anabranch.operations.overview.overview import window_of
from anabranch.operations.overview.search import checked_search
from anabranch.operations.overview.windows import DEFAULT_WINDOW, WINDOWS
from anabranch.store.ports import Head, HeadFilter
from anabranch.surfaces.ui.views.formatting import STATUSES

DIALECTS = ("noetl", "xrc729", "arca")
#: What can be chosen without typing an instant, in milliseconds.
AGES: Mapping[str, tuple[str, int]] = {
    "1h": ("the last hour", 3_600_000),
    "24h": ("the last 24 hours", 86_400_000),
    "7d": ("the last 7 days", 7 * 86_400_000),
    "30d": ("the last 30 days", 30 * 86_400_000),
}
NAMES = ("search", "status", "dialect", "name", "label", "redriven", "age", "from", "to")
FIELDS = ("search", "dialect", "name", "redriven", "age", "from", "to")  # of the form
LIST = "/runs"
LATEST = 253_402_300_799_000  # the last second that a calendar has
SLOTS = 48  # of the histogram of a time that was typed


class Filter(msgspec.Struct, frozen=True):
    """A question about runs, in the words of an address."""

    query: MultiMapping[str]

    @classmethod
    def of_address(cls, address: str) -> Filter:
        """From a form that says which list it belongs to; nothing but our own list."""
        path, _, query = address.partition("?")
        return cls(MultiDict(parse_qsl(query) if path == LIST else ()))

    def wanted(self, now: int, limit: int) -> HeadFilter:
        """For the store."""
        query = self.query
        age = query.get("age", "")
        if age and age not in AGES:
            raise InputError(f"an age is one of {', '.join(AGES)}, not {age[:40]!r}")
        after = now - AGES[age][1] if age else _instant(query.get("from", ""), "from")
        return HeadFilter(
            statuses=tuple(self.statuses),
            dialect=query.get("dialect") or None,
            name=query.get("name") or None,
            labels=self.labels,
            search=checked_search(query.get("search", "")),
            redriven=_yes_or_no(query.get("redriven", "")),
            before=_before(query.get("before", "")),
            created_after=after,
            created_before=_instant(query.get("to", ""), "to"),
            limit=limit,
        )

    def time(self, now: int) -> tuple[int, int, int]:
        """From when to when, and how long a slot is, of the histogram of this list."""
        begin = _instant(self.query.get("from", ""), "from")
        end = _instant(self.query.get("to", ""), "to")
        age = self.query.get("age", "")
        if age or (begin is None and end is None):
            length, width = WINDOWS[window_of(age or DEFAULT_WINDOW)]
            return now - length, now, width
        last = end if end is not None else now
        first = begin if begin is not None else last - WINDOWS[DEFAULT_WINDOW][0]
        return first, last, max(60_000, -(-(last - first) // SLOTS))

    def when(self) -> str:
        """That time in words."""
        if age := self.query.get("age", ""):
            return f"in {AGES[age][0]}"
        typed = self.query.get("from") or self.query.get("to")
        return "in that time" if typed else f"in {AGES[DEFAULT_WINDOW][0]}"

    def between(self, begin: int, end: int) -> str:
        """The same list, but only of runs that began in that time."""
        return self.address({"age": None, "from": _written(begin), "to": _written(end)})

    @property
    def query_text(self) -> str:
        """What a saved view of this list keeps."""
        return urlencode(self._pairs())

    @property
    def statuses(self) -> list[str]:
        return [status for status in self.query.getall("status", []) if status]

    @property
    def labels(self) -> dict[str, str]:
        labels = {}
        for text in filter(None, self.query.getall("label", [])):
            key, equals, value = text.partition("=")
            if not equals:
                raise InputError(f"a label is given as KEY=VALUE, not {text[:200]!r}")
            labels[key.strip()] = value.strip()
        return labels

    @property
    def narrows(self) -> bool:
        return any(self.query.get(name) for name in NAMES)

    @property
    def chosen(self) -> dict[str, Any]:
        """What the form shows."""
        return {name: self.query.get(name, "") for name in FIELDS}

    # -- addresses ---------------------------------------------------------------------------

    def address(self, changes: Mapping[str, str | None] | None = None) -> str:
        """The same list with other parameters; always from its first page."""
        changes = changes or {}
        kept = [pair for pair in self._pairs() if pair[0] not in changes]
        return _list_of([*kept, *((key, value) for key, value in changes.items() if value)])

    def without(self, name: str, value: str) -> str:
        """The same list, but for one of several."""
        return _list_of([pair for pair in self._pairs() if pair != (name, value)])

    def with_one(self, name: str, value: str) -> str:
        """And this one too."""
        pairs = self._pairs()
        return _list_of(pairs if (name, value) in pairs else [*pairs, (name, value)])

    def _pairs(self) -> list[tuple[str, str]]:
        return [(key, text) for key, text in self.query.items() if key in NAMES and text]

    def older(self, last: Head) -> str:
        return self.address({"before": f"{last.created_at}.{last.run}"})

    def status_links(self) -> dict[str, str]:
        """A click adds a status to those that are chosen, or lets it go again."""
        chosen = self.statuses
        return {
            one: self.without("status", one) if one in chosen else self.with_one("status", one)
            for one in STATUSES
        }

    def label_links(self) -> dict[str, str]:
        """label → the list without it."""
        return {
            text: self.without("label", text)
            for text in self.query.getall("label", [])
            if text
        }  # fmt: skip


def between(begin: int, end: int) -> str:
    """The list of all runs that began in that time."""
    return _list_of([("from", _written(begin)), ("to", _written(end))])


def _written(at: int) -> str:
    """As the field for an instant takes it."""
    known = min(max(at, 0), LATEST)
    return f"{datetime.fromtimestamp(known / 1000, UTC):%Y-%m-%dT%H:%M:%S}"


def _list_of(pairs: list[tuple[str, str]]) -> str:
    return f"{LIST}?{urlencode(pairs)}" if pairs else LIST


def before_of(query: Mapping[str, str], what: str) -> tuple[int, str] | None:
    """Where the page of older ones begins that the address asks for; None for the newest."""
    text = query.get("before", "")
    if not text:
        return None
    at, dot, name = text.partition(".")
    if not at.isdecimal() or not dot or len(at) > 15:
        raise InputError(f"`before` is not valid: take it from the link to older {what}")
    return int(at), name


def _yes_or_no(text: str) -> bool | None:
    if text not in ("", "yes", "no"):
        raise InputError(f"redriven is yes or no, not {text[:40]!r}")
    return text == "yes" if text else None


def _before(text: str) -> tuple[int, str] | None:
    if not text:
        return None
    at, _, run = text.partition(".")
    if not at.isdecimal() or len(at) > 16:
        raise InputError("the address names a page that does not exist; start at /runs")
    return int(at), run


def _instant(text: str, field: str) -> int | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise InputError(f"{field} is not a time such as 2026-01-31T18:00: {text[:80]!r}") from None
