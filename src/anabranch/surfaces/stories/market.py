"""The nodes of a story: made, started, introduced to each other, and ended, whatever happens."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.market.node.folder import NodeFile, NodeFolder
from anabranch.modules.kit.entries import executor_entry
from anabranch.surfaces.stories.free_ports import free_ports
from anabranch.surfaces.stories.plan import ROLE, ROLE_HEADER, ROLES, NodePlan
from anabranch.surfaces.stories.processes import (
    START_SECONDS,
    NodeAway,
    NodeProcess,
    until,
)

if TYPE_CHECKING:
    import aiohttp

#: So that what was interrupted by a kill goes on soon.
SECTIONS: Mapping[str, Any] = {
    "delivery": {"retry_seconds_min": 0.2, "retry_seconds_max": 1.0},
    "peers": {"backoff_ms": 100, "backoff_max_ms": 500},
}
MODULE_RESTARTS = {"max_restarts": 1_000, "window_sec": 60}
SYNC_MS = 1_000


class StoryMarket:
    """The first node buys, and its seed directory is that of all."""

    def __init__(self, folder: Path, session: aiohttp.ClientSession) -> None:
        self.folder = folder
        self._session = session
        self.nodes: dict[str, NodeProcess] = {}
        self.plans: dict[str, NodePlan] = {}

    @property
    def buyer(self) -> NodeProcess:
        return next(iter(self.nodes.values()))

    @property
    def providers(self) -> list[NodeProcess]:
        return [node for name, node in self.nodes.items() if self.plans[name].offers]

    def by_participant(self, participant: str) -> NodeProcess | None:
        return next((one for one in self.nodes.values() if one.participant_id == participant), None)

    def named(self, identity: str) -> str:
        """What people call the node or the participant."""
        found = (
            name
            for name, node in self.nodes.items()
            if identity in (node.node_id, node.participant_id)
        )
        return next(found, identity)

    # -- making ----------------------------------------------------------------------------------

    def create(self, plans: Sequence[NodePlan]) -> None:
        ports = iter(free_ports(4 * len(plans)))
        seed = ""
        for plan in plans:
            own = next(ports)
            seed = seed or f"http://127.0.0.1:{own}"
            folder = NodeFolder(self.folder / plan.name)
            file = self._file(plan, own, seed, [next(ports) for _ in range(3)])
            self.plans[plan.name] = plan
            self.nodes[plan.name] = NodeProcess.create(
                folder, file, self._config(plan, folder, file), self._session
            )

    def _file(self, plan: NodePlan, port: int, seed: str, ports: list[int]) -> NodeFile:
        modules = [executor_entry("arca", port=ports[0])]
        if plan.offers:
            modules += [executor_entry("dator", port=ports[1]), role_entry(plan, ports[2])]
        for module in modules:
            module["restart_policy"] = MODULE_RESTARTS
        directory = {"sync_ms": SYNC_MS, "passports": list(plan.passports)}
        return NodeFile(
            name=plan.name,
            port=port,
            seeds=(seed,),
            modules=tuple(modules),
            directory=directory,
            **SECTIONS,
        )

    def _config(self, plan: NodePlan, folder: NodeFolder, file: NodeFile) -> dict[str, Any]:
        if not plan.offers:
            return {}
        (endpoint,) = (one["http"]["endpoint"] for one in file.modules if one["id"] == ROLE)
        token = folder.path / "middleware" / ROLE / "authtok"
        role = {"endpoint": endpoint, "auth_header": ROLE_HEADER, "token_file": str(token)}
        return {"dator": plan.dator(role)}

    # -- coming and going ------------------------------------------------------------------------

    async def start(self, *, held: bool) -> None:
        for node in self.nodes.values():
            node.start(held=held)
        await asyncio.gather(*(node.ready() for node in self.nodes.values()))

    async def stop(self) -> dict[str, int]:
        """In order; the exit status of each."""
        names = list(self.nodes)
        codes = await asyncio.gather(*(self.nodes[name].stop() for name in names))
        return dict(zip(names, codes, strict=True))

    # -- before a run ----------------------------------------------------------------------------

    async def introduce(self, capability: str | None = None) -> None:
        """The buyer trusts the providers; all offers are published, and the holders of the
        capability are known to the buyer."""
        for provider in self.providers:
            trusted = {"participant_id": provider.participant_id}
            await self.buyer.surely("POST", "/v1/trusted-providers", trusted)
        for name, plan in self.plans.items():
            await until(
                lambda name=name, plan=plan: self._has_offers(name, plan),  # type: ignore[misc]
                START_SECONDS,
                f"{name} to publish its offers",
            )
        if capability is not None:
            await until(
                lambda: self._knows_holders(capability),
                START_SECONDS,
                f"the buyer to know who holds {capability}",
            )

    async def _has_offers(self, name: str, plan: NodePlan) -> bool:
        found = await self.nodes[name].items("/v1/service-offers", of="offers")
        return {one.offer_id(name) for one in plan.offers} <= {one["offer/id"] for one in found}

    async def _knows_holders(self, capability: str) -> bool:
        with suppress(NodeAway):
            await self.buyer.ask("POST", "/v1/directory/sync")
        query = {"capability": capability}
        holders = (await self.buyer.surely("GET", "/v1/directory/holders", query=query))["items"]
        wanted = {
            node.node_id
            for name, node in self.nodes.items()
            if capability in self.plans[name].passports
        }
        return wanted <= {one["node_id"] for one in holders}

    async def top_up(self, amount: int, key: str) -> None:
        if amount:
            body = {"amount": amount, "idempotency_key": key}
            await self.buyer.surely("POST", "/v1/ledger/top-up", body)


def role_entry(plan: NodePlan, port: int) -> dict[str, Any]:
    """The row of the role in node.json."""
    return {
        "id": ROLE,
        "launch": {
            "executable": sys.executable,
            "args": ["-m", "anabranch", "dator", "role", "--function", f"{ROLES}:{plan.role}"],
        },
        "http": {"endpoint": f"http://127.0.0.1:{port}", "startup_timeout_ms": 30_000},
        "auth-token": ROLE_HEADER,
    }
