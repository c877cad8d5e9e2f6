"""The tokens with which work on a cluster asks its server: of scope `work`, each for one pool.

One is made when an engine opens and revoked when it closes. Those of an engine that was killed are
revoked by the next one.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from anabranch.errors import AnabranchError
from anabranch.operations.access.tokens import NAME_MAX, AccessControl
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.jobs.dispatchers import dispatcher_name, is_dispatcher

log = logging.getLogger("anabranch.pools")


class WorkTokens:
    def __init__(self, engine: EngineLoop) -> None:
        self._directory = engine.directory
        self._access = AccessControl(engine.store, engine.clock.now)
        self._made: list[str] = []

    async def make(self, pool: str, engine: str) -> tuple[str, str]:
        """The id of a new token, and its text."""
        alive = {one.id for one in await self._directory.servers()} | {self._directory.own_id}
        name = dispatcher_name(pool, engine, self._directory.own_id)[-NAME_MAX:].strip()

        def make() -> tuple[str, str]:
            self._revoke_left(alive)
            token, text = self._access.create(name, ["work"], pools=[pool])
            return token.id, text

        token, text = await asyncio.to_thread(make)
        self._made.append(token)
        return token, text

    def _revoke_left(self, alive: set[str]) -> None:
        for token in self._access.tokens():
            server = token.name.rpartition(":")[2]
            if is_dispatcher(token.name) and server not in alive and self._access.usable(token):
                self._access.revoke(token.id)

    async def revoke(self) -> None:
        """Nobody works for this engine any more."""
        made, self._made = self._made, []
        for token in made:
            with suppress(AnabranchError):  # the next engine does it
                await asyncio.to_thread(self._access.revoke, token)
