"""The schedules of an engine: the verbs, and the scheduler that begins their runs."""

from __future__ import annotations

import asyncio

from anabranch.operations.definitions.catalog import Catalog
from anabranch.operations.runs.verbs import Verbs
from anabranch.operations.schedules.scheduler import Scheduler
from anabranch.operations.schedules.schedules import Schedules
from anabranch.operations.schedules.starter import EngineStarter


class Scheduling:
    """Begins no runs before `begin`."""

    def __init__(self, verbs: Verbs, catalog: Catalog) -> None:
        engine = self._engine = verbs.engine
        prefers = None if engine.member is None else engine.member.would_own_root
        starter = EngineStarter(verbs, catalog, prefers)
        self.scheduler = Scheduler(engine.store, starter, engine.clock)
        self.schedules = Schedules(engine.store, engine.clock, starter.find)

    def begin(self) -> None:
        """From now on, until it is closed, this engine begins the runs of schedules."""
        loop, scheduler = asyncio.get_running_loop(), self.scheduler

        def changed() -> None:  # on any thread
            loop.call_soon_threadsafe(scheduler.changed)

        self.schedules.changed = changed
        self._engine.subscribers.listen_to_ends(scheduler.ended)
        self._engine.subscribers.listen_to_records(scheduler.changed)
        scheduler.start()

    async def close(self) -> None:
        await self.scheduler.close()
