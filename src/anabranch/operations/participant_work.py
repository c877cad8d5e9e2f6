"""The participants of an engine, and the kinds of work that ask them.

An engine that was given none loads nothing of it before the first task that asks somebody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from anabranch.clock import SystemClock
from anabranch.errors import InputError
from anabranch.settings import Settings
from anabranch.work.kinds.lazy import LazyPerformer
from anabranch.work.port import Performer

if TYPE_CHECKING:
    from anabranch.market.directory import PassportDirectory
    from anabranch.net.net import Net
    from anabranch.net.problems import Problem
    from anabranch.operations.participants import Participants
    from anabranch.store.ports import Store
    from anabranch.work.participants.book import Book

KINDS = ("targets", "dispatch", "request", "capability")


class ParticipantWork:
    """One per engine. A mistake in what was given is said at once."""

    def __init__(self, given: Participants | None, settings: Settings) -> None:
        self._given = given
        self._settings = settings
        self._reloading = asyncio.Lock()
        self.are_given = given is not None or bool(settings.participants)
        self.performers: Mapping[str, Performer] = (
            self._made if self.are_given else {kind: self._later(kind) for kind in KINDS}
        )

    def _later(self, kind: str) -> Performer:
        return LazyPerformer(lambda: self._made[kind])

    @cached_property
    def book(self) -> Book:
        """Who can be asked; empty where nobody was given."""
        from anabranch.operations.participants import book_from

        return book_from(self._given, self._settings)

    @property
    def book_name(self) -> str:
        """Where they are listed, for whoever opens a run again."""
        if not self.are_given:
            return ""
        from anabranch.operations.participants import book_name

        return book_name(self._given, self._settings)

    @cached_property
    def _directory(self) -> PassportDirectory:
        from anabranch.market.directory import PassportDirectory

        return PassportDirectory(self.book, SystemClock())

    @cached_property
    def _made(self) -> dict[str, Performer]:
        from anabranch.work.participants import performers as made

        elsewhere = self._directory.elsewhere
        return {
            "targets": made.TargetsPerformer(self._directory),
            "dispatch": made.DispatchPerformer(self.book, elsewhere=elsewhere),
            "request": made.RequestPerformer(self.book, elsewhere=elsewhere),
            "capability": made.CapabilityPerformer(self.book),
        }

    async def open(self, store: Store) -> None:
        """Who can be asked is known before the first run is."""
        if not self.are_given:
            return
        await self._directory.open()
        if self.book.is_there:
            from anabranch.operations.participants import asked_before

            self._directory.rotation.recall(await asyncio.to_thread(asked_before, store))

    def needs_of(self, net: Net) -> list[Problem]:
        """What a definition needs of the participants here; nothing where there is no book."""
        if not self.are_given:
            return []
        from anabranch.operations.participants import needs_of

        return needs_of(net, self.book, self._directory if self.book.directory else None)

    async def reload(self) -> None:
        """Read the book and its directory anew. A book with a mistake changes nothing."""
        from anabranch.operations.participants import book_from
        from anabranch.work.participants.book import Book

        if isinstance(self._given, Book | Mapping):
            raise InputError("the participants were given by the program, not by a file")
        async with self._reloading:
            new = await asyncio.to_thread(book_from, self._given, self._settings, self.book)
            await self._directory.reconfigure(new)
            self.book.become(new)

    async def stop(self) -> None:
        """The directory is read no more."""
        if "_directory" in self.__dict__:
            await self._directory.close()

    async def close(self) -> None:
        """Whatever is open, once nobody is asked any more."""
        if "book" in self.__dict__:
            await self.book.close()
