"""Saved views: the filters of a list of runs under a name, kept in the store for everybody."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

import msgspec

from anabranch.errors import Conflict, InputError, NotFound
from anabranch.operations.overview.search import checked_search
from anabranch.store.ports import Store
from anabranch.store.record_ports import NamedRecord

FAMILY = "view"
NAME_LETTERS = 60
QUERY_LETTERS = 2000
VIEWS_MAX = 200
#: The parameters of the list of runs that a view keeps, as they stand in the address of the page.
NAMES = ("search", "status", "dialect", "name", "label", "age", "from", "to")


class View(msgspec.Struct, frozen=True, kw_only=True):
    """`query` is the part of the address behind `/runs?`."""

    name: str
    query: str
    saved_by: str = ""
    saved_at: int = 0


class _Kept(msgspec.Struct, frozen=True):
    query: str
    saved_by: str = ""


class Views:
    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self) -> list[View]:
        return [_view(record) for record in self._store.records(FAMILY, limit=VIEWS_MAX)]

    def find(self, name: str) -> View:
        record = self._store.record(FAMILY, name) if name else None
        if record is None:
            raise NotFound(f"there is no view {name[:NAME_LETTERS]!r}")
        return _view(record)

    def save(self, name: str, query: str, actor: str, now: int) -> View:
        """One of the same name is replaced."""
        wanted, kept = checked_name(name), checked_query(query)
        body = msgspec.json.encode(_Kept(kept, actor))
        before = self._store.record(FAMILY, wanted)
        if before is None and len(self._store.records(FAMILY, limit=VIEWS_MAX)) >= VIEWS_MAX:
            said = f"there are {VIEWS_MAX} saved views, and no more are kept: delete one first"
            raise InputError(said, code="too_many_views")
        record = NamedRecord(family=FAMILY, name=wanted, body=body, updated_at=now)
        if not self._store.put_record(record, before.version if before is not None else 0):
            raise Conflict(f"another person has just saved the view {wanted!r}: look at it first")
        return View(name=wanted, query=kept, saved_by=actor, saved_at=now)

    def drop(self, name: str) -> View:
        found = self.find(name)
        record = self._store.record(FAMILY, found.name)
        if record is not None:
            self._store.drop_record(FAMILY, record.name, record.version)
        return found


def checked_name(text: str) -> str:
    name = " ".join(text.split())
    if not name or len(name) > NAME_LETTERS or not name.isprintable():
        said = f"the name of a view has 1 to {NAME_LETTERS} characters, and no control characters"
        raise InputError(said, code="bad_view")
    return name


def checked_query(text: str) -> str:
    """Only the parameters of the list; where it was looked at is not part of a view."""
    if len(text) > QUERY_LETTERS:
        said = f"a view has at most {QUERY_LETTERS:,} characters of filters, not {len(text):,}"
        raise InputError(said, code="bad_view")
    pairs = [pair for pair in parse_qsl(text.removeprefix("?")) if pair[0] in NAMES]
    if not all(value.isprintable() for _, value in pairs):
        raise InputError("the filters of a view have control characters", code="bad_view")
    checked_search(dict(pairs).get("search", ""))
    if not pairs:
        said = f"a view needs a filter: one of {', '.join(NAMES)}"
        raise InputError(said, code="bad_view")
    return urlencode(pairs)


def _view(record: NamedRecord) -> View:
    kept = msgspec.json.decode(record.body, type=_Kept)
    return View(
        name=record.name, query=kept.query, saved_by=kept.saved_by, saved_at=record.updated_at
    )
