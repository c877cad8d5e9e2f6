"""Dator as a module of a node: its report, its table, and what it takes up when the host is there.

Until it knows its host and what is open, it takes no request: the host sends them again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.clock import Clock
from anabranch.market.node.api import Endpoint
from anabranch.modules.dator.admission import Admission
from anabranch.modules.dator.book import Book
from anabranch.modules.dator.config import DatorConfig
from anabranch.modules.dator.offers import Offers
from anabranch.modules.dator.pushes import ASKED, Pushes
from anabranch.modules.dator.requests import SKEW_MS
from anabranch.modules.dator.roles import RoleCalls
from anabranch.modules.dator.routes import Routes
from anabranch.modules.dator.tasks import Tasks, until_taken
from anabranch.modules.dator.work import Work
from anabranch.modules.kit.host import Host, HostRefused, HostUnavailable
from anabranch.modules.kit.module import ALLOW, Module, PeerMessage
from anabranch.version import __version__

logger = logging.getLogger("anabranch.module")

PORT = 47971
FORGET_EVERY_SECONDS = 3600.0


class DatorModule(Module):
    module_id = "dator"

    def __init__(self, *, host: Host, clock: Clock, config: DatorConfig, roles: RoleCalls) -> None:
        self._tasks = Tasks()
        self._clock, self._config = clock, config
        self._book = Book(host)
        self._pushes = Pushes(host=host, clock=clock, config=config.push, tasks=self._tasks)
        self._offers = Offers(
            host=host, clock=clock, config=config, pushes=self._pushes, depth=self._book.depth
        )
        self._book.on_depth = self._offers.depth_changed
        self._work = Work(
            host=host, clock=clock, config=config, book=self._book, roles=roles, tasks=self._tasks
        )
        self._admission = Admission(
            book=self._book,
            offers=self._offers,
            clock=clock,
            config=config,
            begin=self._work.begin,
        )
        self._routes = Routes(
            clock=clock,
            offers=self._offers,
            pushes=self._pushes,
            book=self._book,
            work=self._work,
            tasks=self._tasks,
        )
        self._begun = False
        self._loaded = False
        super().__init__()

    def report(self) -> dict[str, Any]:
        return {
            "module_name": "Dator",
            "module_description": "Publishes offers and does the work that is ordered from them",
            "module_role": "supply",
            "module_version": __version__,
            "capabilities": [{"capability_id": "local-offer-catalog", "class": "other"}],
            "handles_service_types": self._offers.service_types(),
            "input_chains": [
                {"chain": "inbound-peer", "message_types": [ASKED]},
                {"chain": "inbound-local", "local_routes": self._routes.local_routes()},
            ],
            "operator_surfaces": [
                {
                    "surface_id": "dator.queue",
                    "label": "Orders",
                    "description": "Orders of others: those that wait for a decision first",
                    "rendering": "host-mediated",
                    "entry_path": "/v1/enact/dator/queue",
                }
            ],
        }

    def endpoints(self) -> Sequence[Endpoint]:
        return self._routes.endpoints()

    async def initialised(self, init: Mapping[str, Any]) -> None:
        self._pushes.node_id = self.node_id
        self._offers.node_id = self.node_id
        self._work.component = str(init.get("component_id") or self.module_id)
        if not self._begun:
            self._begun = True
            self._tasks.spawn(self._take_up())

    async def _take_up(self) -> None:
        """Load what is open, publish what is offered, then go on with the requests."""
        await until_taken(self._offers.load)
        requests = await until_taken(self._book.load)
        await until_taken(self._offers.settle)
        for request in requests:
            self._work.begin(request)
        self._loaded = True
        self._tasks.spawn(self._forget_now_and_then())
        await self._offers.run()

    async def _forget_now_and_then(self) -> None:
        """What strangers have ordered takes no room for good."""
        while True:
            await asyncio.sleep(FORGET_EVERY_SECONDS)
            remembered_ms = self._config.remember_sec * 1000 + 2 * SKEW_MS
            try:
                await self._book.forget(self._clock.now() - remembered_ms)
            except (HostUnavailable, HostRefused) as error:
                logger.info("orders are forgotten later: %s", error.message)

    async def close(self) -> None:
        await self._tasks.close()

    async def peer_message(self, message: PeerMessage) -> dict[str, Any]:
        if message.msg != ASKED or not self._loaded:
            return ALLOW
        return await self._pushes.asked(message)

    async def accept(self, invoke: Mapping[str, Any]) -> dict[str, Any]:
        if not self._loaded:
            return {"status": "retryable", "reason": "starting"}
        return await self._tasks.to_the_end(self._admission.accept(invoke))
