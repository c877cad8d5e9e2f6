"""The participants of the book that the settings name; no store is needed for them."""

from __future__ import annotations

from anabranch.errors import InputError
from anabranch.operations.participants import book_from, rows
from anabranch.settings import Settings
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.local.store import LocalTopic
from anabranch.surfaces.cli.backend.port import Row
from anabranch.work.participants.book import Book


class LocalParticipantBackend(LocalTopic):
    async def all(self) -> list[Row]:
        return rows(book_of(self._store.settings))

    async def reload(self) -> Row:
        message = "reload asks a server to read its book again: name one with --server"
        raise InputError(message, code="usage")


def book_of(settings: Settings) -> Book:
    if not settings.participants:
        message = "name a book of participants with --participants FILE, or a server"
        raise InputError(message, code="usage")
    values.look_here()  # for the functions that it names
    return book_from(None, settings)
