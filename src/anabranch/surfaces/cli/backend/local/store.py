"""The one place of the command line that opens a store, and closes it again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from anabranch.errors import StoreError
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.store.location import exists, on_postgres
from anabranch.store.outages import MISSING
from anabranch.store.ports import Store
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.local.audit import AuditLine

if TYPE_CHECKING:
    from anabranch.operations.definitions.preflight import Preflight
    from anabranch.parts import Parts


class LocalStore:
    """The store that the settings name; an engine elsewhere may be at work on it."""

    def __init__(self, settings: Settings, actor: str = "") -> None:
        self.settings = settings
        self.actor = actor

    def is_there(self) -> bool:
        """A database has to be asked."""
        if not on_postgres(self.settings.store):
            return exists(self.settings.store)
        try:
            open_store(self.settings, read_only=True).close()
        except StoreError as error:
            if error.code != MISSING:
                raise
            return False
        return True

    def reading(self) -> AbstractContextManager[Store]:
        return self._opened(read_only=True)

    def writing(self, *, new: bool = False) -> AbstractContextManager[Store]:
        """With `new` a store that is not there is made."""
        return self._opened(new=new)

    @contextmanager
    def change(self, action: str, subject: str = "", *, new: bool = False) -> Iterator[Store]:
        """What the block changes is one commit with its line in the audit trail."""
        with self.writing(new=new) as store, self.audit_line(store, action, subject).commit():
            yield store

    def audit_line(self, store: Store, action: str, subject: str = "") -> AuditLine:
        return AuditLine(store, self.actor, action, subject)

    @asynccontextmanager
    async def parts(
        self, *, new: bool = False, workers: bool = True, grace: float | None = None
    ) -> AsyncIterator[Parts]:
        """Everything an engine on the store is made of; it is not open yet."""
        from anabranch.parts import Parts  # verbs that look need none
        from anabranch.work.kinds.callables import default_toolbox

        with self.writing(new=new) as store:
            parts = Parts(store, self.settings, default_toolbox, workers=workers)
            try:
                yield parts
            finally:
                await parts.close(grace)

    def preflight(self) -> Preflight:
        """Of an engine that this command line would open."""
        from anabranch.operations.definitions.available import ENGINE_KINDS, available_in
        from anabranch.operations.definitions.preflight import Preflight
        from anabranch.pools.given import options_of, without_server
        from anabranch.work.kinds.callables import default_toolbox

        kinds = (*ENGINE_KINDS, *(tool.name for tool in default_toolbox))
        clusters = options_of(None, self.settings)
        here = available_in(
            self.settings,
            kinds,
            workers=False,
            clusters=clusters,
            unasking=without_server(clusters, served=False),
        )
        return Preflight(here)

    @contextmanager
    def _opened(self, *, read_only: bool = False, new: bool = False) -> Iterator[Store]:
        if not new:
            values.require_store(self.settings)
        store = open_store(self.settings, read_only=read_only, new=new)
        try:
            yield store
        finally:
            store.close()


class LocalTopic:
    def __init__(self, store: LocalStore) -> None:
        self._store = store
