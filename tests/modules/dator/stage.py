"""A Dator with a host in memory, in real time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from anabranch.clock import ManualClock
from anabranch.market.passports import instant
from anabranch.modules.dator.drafts import offer_id_of
from anabranch.modules.dator.module import DatorModule
from anabranch.modules.dator.role import FunctionRoles
from anabranch.modules.kit.host import Host
from hangs import HANG_SECONDS
from modules.dator.fake_host import NODE, FakeHost
from modules.dator.requests_of import BUYER_NODE, invoke_of
from modules.dator.support import OFFER, ROLE, config_of

NOW = instant("2026-06-10T08:00:10Z", "now")
OFFER_ID = offer_id_of(config_of(OFFER).offers[0], NODE)


class Stage:
    """A Dator with a host in memory, and a role that waits until it is let go."""

    def __init__(self, host: FakeHost | None = None, **more: Any) -> None:
        self.host = host or FakeHost()
        self.clock = ManualClock(NOW)
        self.host.now = self.clock.now
        self.free = asyncio.Event()
        self.calls: list[str] = []
        self.output: Any = ...  # of the role, where a test wants another
        offer = {**OFFER, **more.pop("offer", {})}
        self.module = DatorModule(
            host=Host(self.host),
            clock=self.clock,
            config=config_of(offer, **more),
            roles=FunctionRoles({ROLE: self._work}),
        )

    async def _work(self, given: Any, task: Any) -> Any:
        self.calls.append(task["dispatch/id"])
        await self.free.wait()
        return {"summary": given["text"][:5]} if self.output is ... else self.output

    async def open(self) -> Stage:
        init = {"node_id": NODE, "module_id": "dator", "component_id": "dator"}
        status, _ = await self.module.handle("POST", "/v1/middleware/init", {}, init)
        assert status == 200
        await until(lambda: self.module._loaded)
        return self

    async def accept(
        self, request: Any, peer: str = BUYER_NODE, *, trusted: bool = False
    ) -> tuple[str, str]:
        path = "/v1/artifact-delivery/accept"
        given = {**invoke_of(request, peer), "source/trusted": trusted}
        status, said = await self.module.handle("POST", path, {}, given)
        assert (status, said["acceptor/id"]) == (200, "dator-requests")
        return said["status"], said.get("reason", "")

    async def done(self) -> None:
        self.free.set()
        await until(lambda: not self.host.kind("dator-request"))


async def until(is_so: Callable[[], Any]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not is_so():
            await asyncio.sleep(0)
