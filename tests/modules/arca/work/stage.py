"""A buyer with Arca and providers with a small shop, whole nodes in virtual time.

The shop answers fan-outs with its offer, and every request for work once, with what it is told to.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from anabranch.clock import Clock
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.buying.dispatching import envelope_of
from anabranch.modules.kit.entries import ACCEPTORS
from anabranch.modules.kit.host import Host, HostCall
from anabranch.modules.kit.module import DROP, Module, PeerMessage, reply
from anabranch.testing.market import LastingModule, ModuleLife, NodeSpec, World, arca
from anabranch.work.participants.performers import rfc3339

RUNS = "/v1/enact/arca/runs"
SERVICE = "text/summarise"
OFFER = {
    "service/type": SERVICE,
    "service/description": "a summary",
    "pricing/currency": "ORC",
    "pricing/unit": "text",
    "pricing/unit-kind": "per-item",
    "delivery/max-duration-sec": 60,
    "queue/max-depth": 100,
    "confirmation/mode": "self-confirmed",
    "expires-at": "2026-07-01T00:00:00Z",
}
#: Nobody has to accept: time does, soon after the work could have been done.
SOON = {"accept_seconds": 1, "dispute_seconds": 1, "auto_release_seconds": 1}


class Sold:
    """What a shop was asked and what it says; it outlives the module."""

    def __init__(self) -> None:
        self.requests: list[str] = []  # ids of requests that were carried out, each time
        self.asked: list[Mapping[str, Any]] = []  # fan-outs
        self.answers: Callable[[Mapping[str, Any]], dict[str, Any] | None] = _completed
        self.silent = False


def _completed(request: Mapping[str, Any]) -> dict[str, Any]:
    return {"status": "completed", "output": {"made_of": request["request/input"]}}


def failed(code: str = "role_failed") -> dict[str, Any]:
    return {"status": "failed", "error": {"code": code, "message": "it did not work"}}


class Shop(Module):
    module_id = "shop"

    def __init__(self, life: ModuleLife, sold: Sold) -> None:
        self._host = Host(life.host)
        self._clock = life.clock
        self._sold = sold
        super().__init__()

    def report(self) -> dict[str, Any]:
        chain = {"chain": "inbound-peer", "message_types": ["workflow.fanout.request"]}
        return {"input_chains": [chain]}

    async def peer_message(self, message: PeerMessage) -> dict[str, Any]:
        self._sold.asked.append(message.payload)
        if self._sold.silent:
            return DROP
        query = {"service/type": message.payload["service_type"]}
        body = {"schema_version": "v1", "capability_id": "offers_local_query", "query": query}
        found = (await self._host.capability("offers.local.query", body)).body["local_offers"]
        said: dict[str, Any] = {"status": "no_offer_available"}
        if found:
            said = {"status": "offer", "offer": found[0]["offer"]}
        named = {"schema_version": "v1", "dispatch_id": message.payload["dispatch_id"]}
        return reply({**named, **said})

    async def accept(self, invoke: Mapping[str, Any]) -> dict[str, Any]:
        """The work is done before the request is accepted, and so is handing in its result."""
        request = msgspec.json.decode(b64decode(invoke["artifact"]["bytes/base64"]))
        self._sold.requests.append(request["request_id"])
        answer = self._sold.answers(request)
        if answer is not None:
            await self._host.deliver(self._result(request, answer))
        return {"status": "accepted", "reason": ""}

    def _result(self, request: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
        kept = ("request_id", "workflow/run-id", "workflow/phase-id", "correlation/id")
        order = request["order"]
        result = {
            "schema": "service-order.result.v1",
            **{key: request[key] for key in (*kept, "service_type")},
            "provider/node-id": order["provider/node-id"],
            "provider/participant-id": order["provider/participant-id"],
            "responded_at": rfc3339(self._clock.now()),
            **answer,
        }
        return envelope_of(result, request["reply/target"]["node/id"], self.module_id)


class Judge(Module):
    """Decides about publications, as it is told."""

    module_id = "judge"

    def __init__(self, _life: ModuleLife, verdicts: list[Any]) -> None:
        self._verdicts = verdicts
        super().__init__()

    def report(self) -> dict[str, Any]:
        handler = {"capability_id": "publication.verify", "invoke_path": "/v1/verify"}
        return {"host_capability_handlers": [handler]}

    def endpoints(self) -> Sequence[Endpoint]:
        return [
            Endpoint(
                method="POST", path="/v1/verify", scopes=("operator",), handler=self._verify,
                summary="Whether it is published",
            )
        ]  # fmt: skip

    async def _verify(self, call: Call) -> Answer:
        verdict = self._verdicts.pop(0)
        return Answer(body=verdict(call.body) if callable(verdict) else verdict)


class Watched(LastingModule[Any]):
    """The same module; what it asks its host is noted: method, path, body."""

    def __init__(self, module: LastingModule[Any]) -> None:
        self._module = module
        self.executor = module.executor
        self.calls: list[tuple[str, str, Any]] = []

    def begin(self, clock: Clock) -> tuple[Callable[[ModuleLife], Any], Any]:
        make, kept = self._module.begin(clock)
        return (lambda life: make(life._replace(host=self._noted(life.host)))), kept

    def _noted(self, host: HostCall) -> HostCall:
        async def ask(method: str, path: str, body: Any, query: Mapping[str, str]) -> Answer:
            self.calls.append((method, path, body))
            return await host(method, path, body, query)

        return ask


class Stage:
    """`prices` has a provider for each price of its one offer, by name; None has no offer."""

    def __init__(
        self, prices: Mapping[str, int | None], *, work_seconds: int = 60, **config: Any
    ) -> None:
        self._work_seconds = work_seconds
        self.sold = {name: Sold() for name in prices}
        passports = {"directory": {"passports": ["offer-catalog"]}}
        buying = Watched(
            arca({"peer_sync_interval_sec": 60, **config}, grants=("publication.verify",))
        )
        self.calls = buying.calls
        self.verdicts: list[Any] = []
        judge = LastingModule(lambda _clock: self.verdicts, Judge)
        modules: dict[str, LastingModule[Any]] = {"arca": buying, "judge": judge}
        specs = [NodeSpec(name="buyer", modules=modules, config={"orders": SOON})]
        for name, sold in self.sold.items():
            shop = LastingModule(
                lambda _clock, sold=sold: sold,  # type: ignore[misc]
                Shop,
                {"acceptors": [ACCEPTORS["dator"]]},
            )
            specs.append(NodeSpec(name=name, modules={"shop": shop}, config=passports))
        self.world = World(specs)
        self.buyer = self.world["buyer"]
        self.providers = {name: self.world[name].participant_id for name in prices}
        self.module = self.buyer.modules["arca"]
        for name, price in prices.items():
            trusted = {"participant_id": self.providers[name]}
            self._ask("buyer", "POST", "/v1/trusted-providers", trusted)
            if price is not None:
                self.offer(name, price)
        self._ask("buyer", "POST", "/v1/ledger/top-up", {"amount": 10_000})
        self.world.advance(15)  # Arca hears of the offers

    def offer(self, name: str, price: int, offer_id: str = "", **fields: Any) -> None:
        """A provider offers its service, and the buyer hears of it."""
        draft = {
            **OFFER,
            "offer/id": offer_id or f"offer:{name}",
            "pricing/amount": price,
            "delivery/max-duration-sec": self._work_seconds,
        }
        draft |= {key.replace("__", "/").replace("_", "-"): one for key, one in fields.items()}
        self._ask(name, "POST", "/v1/service-offers", draft)
        found = {"node_id": self.world[name].node_id}
        self._ask("buyer", "POST", "/v1/service-offers/fetch", found)

    def close(self) -> None:
        asyncio.run(self.world.close())

    def _ask(self, node: str, method: str, path: str, body: Any = None) -> Any:
        answer = asyncio.run(_awaited(self.world[node].request(method, path, body)))
        assert answer.status < 300, (path, answer)
        return answer.body

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        return self._ask("buyer", method, path, body)

    def start(self, steps: Sequence[Mapping[str, Any]], run: str = "run:one", **more: Any) -> None:
        definition = {"workflow_id": "w", "plan": {"steps": list(steps)}, **more}
        self.ask("POST", RUNS, {"definition": definition, "run_id": run})

    def ended(self, run: str = "run:one", seconds: int = 1200) -> Any:
        """The run at its end, whoever is killed meanwhile."""
        for _ in range(seconds // 5):
            self.world.advance(5)
            if self.buyer.node is None:
                self.buyer.start()
                self.world.advance(5)
            answer = asyncio.run(_awaited(self.buyer.request("GET", f"{RUNS}/{run}")))
            if answer.status == 200 and answer.body["status"] not in ("pending", "running"):
                return answer.body
        raise AssertionError(f"still {answer}")

    def executions(self) -> list[Any]:
        """Oldest first."""
        return list(reversed(self.ask("GET", "/v1/executions?limit=100")["items"]))

    def movements(self) -> list[str]:
        items = self.ask("GET", "/v1/ledger/movements")["items"]
        return sorted(one["kind"] for one in items if one["kind"] != "top-up")


#: Makes a market that the test need not close.
Make = Callable[..., Stage]


async def _awaited(done: Any) -> Any:
    return await done


def step(step_id: str, **more: Any) -> dict[str, Any]:
    return {"step_id": step_id, "service_type": SERVICE, **more}


def outputs(run: Mapping[str, Any]) -> dict[str, Any]:
    return {one["step_id"]: one.get("output") for one in run["steps"]}
