"""Credentials: which there are, of which type and with which fields; never a value.

Pages only list them. Adding, rotating and removing stays at the command line and the API: a value
that is typed into a browser stays in places that nobody looks at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote

import msgspec
from aiohttp import web

from anabranch.operations.access.credentials import CredentialCard
from anabranch.operations.definitions.catalog import Catalog
from anabranch.operations.definitions.templates import DIALECT as TEMPLATE
from anabranch.store.ports import DefinitionFilter
from anabranch.surfaces.http.io.readers import ReadHandle
from anabranch.surfaces.http.io.threads import in_thread
from anabranch.surfaces.ui.context import show, ui_of

PATHS = 200  # of the catalog, the newest version of each
DEFINITIONS = 50  # the newest ones of the store
SHOWN = 5  # definitions that are named for one credential
BYTES_MAX = 256 * 1024  # of one definition that is searched


class CredentialRow(msgspec.Struct):
    card: CredentialCard
    users: list[tuple[str, str]] = []  # what it is called, and its page
    more: int = 0


async def list_all(request: web.Request) -> web.StreamResponse:
    ui = ui_of(request)
    cards = await in_thread(ui.parts.credentials.all)
    rows = await ui.look(lambda by: _with_users(by, cards)) if cards else []
    outside = [source.label for source in ui.parts.credential_sources][1:]
    return show(
        request,
        "credentials.html",
        rows=rows,
        outside=outside,
        wrong=[row.card.name for row in rows if row.card.key != "ok"],
        looked={"paths": PATHS, "definitions": DEFINITIONS},
    )


def _with_users(by: ReadHandle, cards: Sequence[CredentialCard]) -> list[CredentialRow]:
    rows = {card.name: CredentialRow(card) for card in cards}
    # The longest first: `pg-main` is not `pg`.
    names = "|".join(re.escape(name) for name in sorted(rows, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w-])(?:{names})(?![\w-])")
    for what, page, source in _definitions(by):
        for name in sorted(set(pattern.findall(source))):
            row = rows[name]
            if len(row.users) < SHOWN:
                row.users.append((what, page))
            else:
                row.more += 1
    return list(rows.values())


def _definitions(by: ReadHandle) -> Iterator[tuple[str, str, str]]:
    """What it is called, its page and its text; what is in the catalog is told by its path."""
    seen: set[str] = set()
    catalog = Catalog(by.store)
    for entry in catalog.paths(limit=PATHS):
        seen.add(entry.fingerprint)
        yield from _text(
            by, entry.path, f"/definitions?path={quote(entry.path)}", entry.fingerprint
        )
    named: set[str] = set()
    for card in by.store.definitions(DefinitionFilter(limit=DEFINITIONS)):
        if card.fingerprint in seen or card.dialect == TEMPLATE or card.name in named:
            continue
        named.add(card.name)  # the newest of each name
        page = f"/definitions?fingerprint={quote(card.fingerprint)}"
        yield from _text(by, card.name, page, card.fingerprint)


def _text(by: ReadHandle, what: str, page: str, fingerprint: str) -> Iterator[tuple[str, str, str]]:
    kept = by.store.definition(fingerprint)
    if kept is not None and len(kept.source) <= BYTES_MAX:
        yield what, page, kept.source
