"""Everything that hosted runs need, put together: engine, mirror, start, recovery, surface."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from anabranch.cancel import cancel_and_wait
from anabranch.clock import Clock
from anabranch.market.node.api import Endpoint
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.arca.details import StepDetails
from anabranch.modules.arca.ends import RunEnds
from anabranch.modules.arca.engine import ArcaEngine
from anabranch.modules.arca.host_runs import HostRuns
from anabranch.modules.arca.mirror import RunMirror
from anabranch.modules.arca.recovery import Recovery
from anabranch.modules.arca.runs import RunsPart
from anabranch.modules.arca.snapshots import gates_of, run_document
from anabranch.modules.arca.starting import Starter
from anabranch.modules.arca.work.attempts import Attempt
from anabranch.modules.kit.host import Host, HostRefused, HostUnavailable
from anabranch.modules.kit.module import MessageHandler
from anabranch.store.ports import Store
from anabranch.work.port import Performer


class HostedRuns:
    """A part of the module Arca."""

    def __init__(
        self,
        *,
        host: Host,
        clock: Clock,
        store: Store,
        performers: Mapping[str, Performer],
        details: StepDetails,
        config: ArcaConfig,
    ) -> None:
        self._config = config
        self._details = details
        self._host = HostRuns(host)
        self.engine = ArcaEngine(store, clock, performers, waiting_max=config.waiting_steps_max)
        self.mirror = RunMirror(self._host, RunEnds(host), self._look, config, self._closed)
        starter = Starter(self.engine, self._host, self.mirror, self._look_again)
        self.recovery = Recovery(self.engine, self._host, self.mirror, starter, config)
        self.part = RunsPart(self.engine, starter, self._host, self.document)
        self._tasks: set[asyncio.Task[None]] = set()

    def endpoints(self) -> Sequence[Endpoint]:
        return self.part.endpoints()

    def local_routes(self) -> Sequence[str]:
        return self.part.local_routes()

    def messages(self) -> Mapping[str, MessageHandler]:
        return self.part.messages()

    async def start(self) -> None:
        self.engine.listen(lambda news: self.mirror.changed(news.run))
        self._details.listen(self.mirror.changed)
        await self.engine.open()
        self._spawn(self.recovery.run())

    async def close(self) -> None:
        """The host is shown the rest after the next start."""
        await cancel_and_wait(*self._tasks)
        await self.mirror.close()
        await self.engine.close()

    @property
    def ready(self) -> bool:
        """The engine is open, and the host has answered once."""
        return self.engine.is_open and self.recovery.host_answered.is_set()

    def is_attempt_open(self, attempt: Attempt) -> bool:
        return self.engine.is_attempt_open(attempt)

    def document(self, run: str) -> dict[str, Any]:
        """A run as the host is shown it, with the revision that it has there."""
        shown = self.mirror.as_shown(self._document(run))
        return {"schema": "workflow-run-snapshot.v1", **shown}

    def _document(self, run: str) -> dict[str, Any]:
        most = self._config.snapshot_output_bytes
        return run_document(self.engine.read, self._details, run, most)

    def _look(self, run: str) -> tuple[dict[str, Any], list[str]] | None:
        if not self.engine.loop.known(run):
            return None
        shown = self._document(run)
        paused = shown["status"] == "paused"
        return shown, gates_of(self.engine.read.state(run)) if paused else []

    def _look_again(self) -> None:
        """The host may have a run that was not begun."""
        self._spawn(self.recovery.run())

    def _closed(self, run: str) -> None:
        self._details.forget(run)
        self._spawn(self._forget(run))

    async def _forget(self, run: str) -> None:
        """What it could be started again from is not needed any more."""
        with suppress(HostUnavailable, HostRefused):  # then it stays, and says nothing of use
            await self._host.forget_definition(run)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
