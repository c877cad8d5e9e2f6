"""A provider with Dator, buyers without any module, and roles that remember what they did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.market.node.modules.part import HostCall
from anabranch.modules.dator.config import DatorConfig, dator_config
from anabranch.modules.dator.drafts import offer_id_of
from anabranch.modules.dator.module import DatorModule
from anabranch.modules.dator.role import FunctionRoles
from anabranch.modules.kit.host import Host
from anabranch.modules.kit.module import PeerMessage
from anabranch.testing.market import NodeSpec, World, check_laws

ROLE = "role.summarise"
SERVICE = "text/summarise"
OFFER: dict[str, Any] = {
    "service_type": SERVICE,
    "service_description": "a summary",
    "pricing_amount": 100,
    "confirmation_mode": "self-confirmed",
    "dispatch": {"kind": "role-module", "capability_id": ROLE},
}
ACCEPTOR = {
    "acceptor_id": "dator-requests",
    "artifact_schema": "service-order.dispatch.request.v1",
}
EXECUTOR = {
    "id": "dator",
    "kind": "in_process",
    "grants": [
        "offers.local.query", "offers.publish", "seed.directory.query", "peer.*",
        "artifact.delivery.send", "workflow.step.completed.publish",
    ],
    "acceptors": [ACCEPTOR],
}  # fmt: skip


class Summaries:
    """A role over all lives of the provider: it does the same dispatch once."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.done: dict[str, Any] = {}
        self.before: Callable[[Mapping[str, Any]], Any] = lambda _task: None

    async def __call__(self, given: Mapping[str, Any], task: Mapping[str, Any]) -> Any:
        self.calls.append(task["dispatch/id"])
        waits = self.before(task)
        if waits is not None:
            await waits
        summary = {"summary": str(given.get("text", ""))[:5]}
        return self.done.setdefault(task["dispatch/id"], summary)


def config_of(*offers: Mapping[str, Any], **more: Any) -> DatorConfig:
    return dator_config({"dator": {"offers": list(offers), **more}})


class LoopClock:
    """The time of the world, which is that of its event loops."""

    def now(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)


class Market:
    """`config` may be changed between two lives of the provider."""

    def __init__(
        self,
        config: DatorConfig | None = None,
        *,
        buyers: tuple[str, ...] = ("buyer",),
        role: Any = None,
        node: Mapping[str, Any] | None = None,
    ) -> None:
        self.role = role if role is not None else Summaries()
        self.config = config or config_of(OFFER)
        self.modules: list[DatorModule] = []
        self.invokes: list[Any] = []  # what the acceptor was asked
        self.heard: list[str] = []  # messages of peers that Dator was asked about
        specs = [NodeSpec(name=name) for name in buyers]
        raw = {"modules": [EXECUTOR], **(node or {})}
        provider = NodeSpec(name="provider", config=raw, modules={"dator": self._make})
        self.world = World([*specs, provider])
        self.provider = self.world["provider"]
        self.buyers = [self.world[name] for name in buyers]
        self.world.advance(2)  # Dator gets ready

    def _make(self, call: HostCall) -> DatorModule:
        made = DatorModule(
            host=Host(call),
            clock=LoopClock(),
            config=self.config,
            roles=FunctionRoles({ROLE: self.role}),
        )
        accept = made.accept

        async def noted(invoke: Any) -> dict[str, Any]:
            self.invokes.append(invoke)
            return await accept(invoke)

        decide = made.peer_message

        async def heard(message: PeerMessage) -> dict[str, Any]:
            self.heard.append(message.msg)
            return await decide(message)

        made.accept = noted  # type: ignore[method-assign]
        made.peer_message = heard  # type: ignore[method-assign]
        self.modules.append(made)
        return made

    @property
    def offer_id(self) -> str:
        return offer_id_of(self.config.offers[0], self.provider.node_id)

    async def ask(
        self, node: str, method: str, path: str, body: Any = None, *, good: bool = True
    ) -> Any:
        """What the node says; it is started and asked again where it dies meanwhile."""
        for _ in range(20):
            self.revive()
            try:
                answer = await self.world[node].request(method, path, body)
            except AnabranchError:
                continue
            if answer.status == 503:
                await self.world.advance(1)
                continue
            assert not good or answer.status < 300, (path, answer)
            return answer.body if good else answer
        raise AssertionError(f"{node} does not answer {path}")

    def revive(self) -> None:
        for one in self.world.nodes:
            for _ in range(5):
                if one.node is not None:
                    break
                with suppress(AnabranchError):  # it dies again
                    one.start()

    async def open(self, buyer: str = "buyer", money: int = 1000) -> None:
        """The buyer knows the offers, trusts the provider, and has money."""
        for _ in range(20):
            await self.world.advance(5)
            if await self.offers():
                break
        trusted = {"participant_id": self.provider.participant_id}
        await self.ask(buyer, "POST", "/v1/trusted-providers", trusted)
        found = {"node_id": self.provider.node_id}
        await self.ask(buyer, "POST", "/v1/service-offers/fetch", found)
        top_up = {"amount": money, "idempotency_key": "first"}
        await self.ask(buyer, "POST", "/v1/ledger/top-up", top_up)

    async def order(self, name: str = "one", buyer: str = "buyer", **given: Any) -> dict[str, Any]:
        wish = {
            "offer_id": self.offer_id,
            "order_id": f"order:{name}",
            "input": {"text": "a long text"},
            **given,
        }
        found: dict[str, Any] = await self.ask(buyer, "POST", "/v1/orders", wish)
        return found

    async def execution(self, name: str = "one", buyer: str = "buyer") -> dict[str, Any]:
        path = f"/v1/executions/execution:{name}"
        found: dict[str, Any] = await self.ask(buyer, "GET", path)
        return found

    async def result(self, name: str = "one", buyer: str = "buyer") -> dict[str, Any]:
        path = f"/v1/executions/execution:{name}/result"
        found: dict[str, Any] = await self.ask(buyer, "GET", path)
        return found

    async def queue(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.ask("provider", "GET", "/v1/enact/dator/queue")
        return found

    async def offers(self, *, active_only: bool = True) -> list[dict[str, Any]]:
        path = f"/v1/service-offers?active_only={str(active_only).lower()}"
        found: list[dict[str, Any]] = (await self.ask("provider", "GET", path))["offers"]
        return found

    async def close(self) -> None:
        self.revive()
        assert check_laws(self.world) == []
        await self.world.close()
