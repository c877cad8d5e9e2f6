"""What Arca does when it starts: go on where the host says that something is left to be done.

The engine goes on with the runs of its own store by itself. A run that the host has and the store
does not (its home was lost, or the module ended before the run was begun) is started again from
its definition under the same id: its orders are found again by their ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from anabranch.errors import AnabranchError, StoreError
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.arca.engine import ArcaEngine
from anabranch.modules.arca.host_runs import CLOSED_STEPS, HostRuns
from anabranch.modules.arca.mirror import RunMirror
from anabranch.modules.arca.starting import Starter
from anabranch.modules.kit.host import HostRefused, HostUnavailable

logger = logging.getLogger("anabranch.module")

LOST = "definition_lost"
UNUSABLE = "definition_unusable"
_NEEDED = {"definition", "input", "digest"}


class Recovery:
    def __init__(
        self,
        engine: ArcaEngine,
        runs: HostRuns,
        mirror: RunMirror,
        starter: Starter,
        config: ArcaConfig,
    ) -> None:
        self._engine = engine
        self._host = runs
        self._mirror = mirror
        self._starter = starter
        self._config = config
        self.host_answered = asyncio.Event()

    async def run(self) -> None:
        """Until the host has answered, and everything that was left goes on."""
        pause = self._config.host_retry_first_ms / 1000
        while True:
            try:
                await self._once()
                return
            except HostUnavailable:
                pass
            except HostRefused as error:
                logger.error("the host does not say which runs are active: %s", error.message)
            await asyncio.sleep(pause)
            pause = min(pause * 2, self._config.host_retry_max_ms / 1000)

    async def _once(self) -> None:
        active = await self._host.active()
        self.host_answered.set()
        for snapshot in active:
            try:
                await self._go_on(snapshot)
            except HostRefused as error:
                logger.error("run %s cannot go on: %s", snapshot["run_id"], error.message)
        for head in self._engine.unfinished():
            self._mirror.changed(head.run)

    async def _go_on(self, snapshot: Mapping[str, Any]) -> None:
        run = snapshot["run_id"]
        if self._engine.loop.known(run):
            self._mirror.changed(run)
            return
        kept = await self._host.definition(run)
        if self._engine.loop.known(run):
            return  # begun by its caller, who has asked again
        if kept is None or not kept.keys() >= _NEEDED:
            said = "the module has lost this run, and its definition was not kept"
            await self._give_up(snapshot, LOST, said)
            return
        try:
            await self._starter.begin_kept(run, kept)
        except StoreError:
            raise
        except AnabranchError as error:
            await self._give_up(snapshot, UNUSABLE, f"it cannot be started again: {error.message}")
        else:
            logger.warning("run %s was not in the store, and is started again", run)

    async def _give_up(self, snapshot: Mapping[str, Any], code: str, message: str) -> None:
        logger.error("run %s failed: %s", snapshot["run_id"], message)
        own = ("schema", "module_id", "revision", "updated_at", "created_at", "pause_reason")
        document = {name: value for name, value in snapshot.items() if name not in own}
        document |= {"status": "failed", "error": {"code": code, "message": message[:4096]}}
        document["steps"] = [
            step if step["status"] in CLOSED_STEPS else {**step, "status": "cancelled"}
            for step in snapshot["steps"]
        ]
        await self._host.write(document, snapshot["revision"])
