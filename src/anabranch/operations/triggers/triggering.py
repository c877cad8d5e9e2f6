"""The triggers of an engine: the verbs, what fires them, and the dispatcher for finished runs.

Where the store has no trigger that follows finished runs, nothing here looks at any event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from anabranch.cancel import cancel_and_wait
from anabranch.errors import AnabranchError, StoreError
from anabranch.kernel.state import State
from anabranch.operations.definitions.aliases import Aliases
from anabranch.operations.definitions.catalog import Catalog
from anabranch.operations.definitions.prepare import Prepared
from anabranch.operations.runs.verbs import Verbs
from anabranch.operations.schedules.schedule import Target
from anabranch.operations.schedules.targets import definition_of
from anabranch.operations.triggers.chains import (
    BODY_BYTES,
    ChainDispatcher,
    FinishMatcher,
    keep_hooks,
)
from anabranch.operations.triggers.firing import TriggerFirer
from anabranch.operations.triggers.signatures import secret_in
from anabranch.operations.triggers.trigger import HookRules
from anabranch.operations.triggers.triggers import Triggers
from anabranch.settings import Settings
from anabranch.work.secrets.credential_sources import Credential, CredentialSource, find_in

log = logging.getLogger("anabranch.triggers")

AGAIN_SECONDS = 1.0  # after the store could not be asked


class Triggering:
    """Acts on no finished run before `begin`."""

    def __init__(
        self,
        verbs: Verbs,
        catalog: Catalog,
        settings: Settings,
        sources: Sequence[CredentialSource],
    ) -> None:
        engine = self._engine = verbs.engine
        self._verbs, self._catalog = verbs, catalog
        self._sources = sources
        self.firer = TriggerFirer(verbs, self._prepared)
        self.triggers = Triggers(
            engine.store, engine.clock, lambda target: self._prepared(target).net, verbs.read
        )
        self.aliases = Aliases(engine.store, engine.clock, catalog)
        self.dispatcher = ChainDispatcher(
            engine.store,
            FinishMatcher(engine.store, engine.nets, BODY_BYTES),
            self.firer,
            verbs.read,
            clock=engine.clock,
            settings=settings,
            may_act_for=engine.may_act_for,
        )
        self._looking: asyncio.Task[None] | None = None
        self._again = False
        self._following = False  # the dispatcher works, and hears of finished runs
        self._closed = False

    def _prepared(self, target: Target) -> Prepared:
        engine = self._engine
        return definition_of(engine.store, engine.nets, self._catalog, target)

    async def secret_of(self, rules: HookRules) -> str:
        """What calls of a hook are signed with; raises where there is none."""
        try:
            found = await find_in(self._sources, rules.credential)
        except AnabranchError as error:
            log.error("a hook cannot be checked: %s", error.message)
            found = Credential("")
        secret = secret_in(found.data, rules.field)
        if not secret:
            raise StoreError(
                "the server does not have the secret of this hook, so it cannot tell who calls",
                code="hook_secret",
            )
        return secret

    # -- life --------------------------------------------------------------------------------

    def begin(self) -> None:
        """From now on, until it is closed, this engine acts on finished runs."""
        loop = asyncio.get_running_loop()

        def changed() -> None:  # on any thread
            loop.call_soon_threadsafe(self._changed)

        self.triggers.changed = changed
        self._engine.subscribers.listen_to_records(self._changed)
        self._changed()

    async def close(self) -> None:
        self._closed = True
        if self._looking is not None:
            await cancel_and_wait(self._looking)
        await self.dispatcher.close()

    def _changed(self) -> None:
        """A trigger may have changed, here or in another process."""
        self._again = True
        if not self._closed and (self._looking is None or self._looking.done()):
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        while self._again:
            self._again = False
            try:
                any_chain = await asyncio.to_thread(keep_hooks, self._engine.store)
            except AnabranchError as error:  # the store is busy or gone; a later look tells
                log.warning("triggers: %s", error.message)
                self._again = True
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            if any_chain and not self._following:
                self._follow()
            if self._following:
                self.dispatcher.changed()

    def _follow(self) -> None:
        self._following = True
        self._engine.subscribers.listen_to_ends(self._ended)
        member = self._engine.member
        if member is not None:
            member.before_hand_over.append(self.dispatcher.let_go)
        self.dispatcher.start()

    def _ended(self, _: State) -> None:
        self.dispatcher.news()
