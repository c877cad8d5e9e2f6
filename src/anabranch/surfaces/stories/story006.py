"""Story 006: a buyer asks all who hold a capability for an offer, orders the cheapest, and pays.

The order goes to a remote provider as an artifact; the result comes back as one; money is on hold
meanwhile and released when the payer accepts.
"""

from __future__ import annotations

import asyncio
import base64
import signal
from typing import Any

import msgspec

from anabranch.market.documents import digest_of
from anabranch.market.node.modules.tokens import MODULE_HEADER
from anabranch.surfaces.stories.market import StoryMarket
from anabranch.surfaces.stories.narration import Narrator
from anabranch.surfaces.stories.plan import CAPABILITY, WORK_SECONDS, NodePlan, Offering, definition
from anabranch.surfaces.stories.processes import START_SECONDS, part, until
from anabranch.surfaces.stories.roles import summarise
from anabranch.surfaces.stories.story import Story, accept_all, expect, states
from anabranch.surfaces.stories.trail import RESULT, Trail

SERVICE = "text/summarise"
NAMES = ("north", "south", "east", "west")
PRICES = (300, 250, 280, 260)  # of the first four; the others ask for more
PROVIDERS_MAX = 50
STALLED_SECONDS = 4  # within which an order of the variant `stalled` is to be done
LATE_SECONDS = 1.0


class Story006(Story):
    number = "006"
    title = "a buyer asks who can summarise a text, and orders from the cheapest"
    variants = ("silent", "budget", "conflict", "stalled")
    capability = CAPABILITY
    fan_outs = ("offers",)

    def __init__(self, variant: str = "", providers: int = 3, depth: int = 100) -> None:
        """`depth` is that of the queue of every provider."""
        super().__init__(variant)
        self._providers = providers
        self._depth = depth
        self._conflicts: dict[str, str] = {}  # by execution, the delivery of the second result
        self._refused = ""  # what became of it

    def plans(self) -> list[NodePlan]:
        stalled = self.variant == "stalled"
        return [
            NodePlan(name="buyer"),
            *(
                NodePlan(
                    name=name_of(at),
                    role="stalled" if stalled else "work",
                    passports=(CAPABILITY,),
                    offers=(
                        Offering(
                            service_type=SERVICE,
                            amount=price_of(at),
                            confirmation="self-confirmed",
                            seconds=STALLED_SECONDS if stalled else WORK_SECONDS,
                            depth=self._depth,
                        ),
                    ),
                )
                for at in range(self._providers)
            ),
        ]

    @property
    def provider(self) -> str:
        return name_of(min(range(self._providers), key=price_of))

    @property
    def price(self) -> int:
        return min(price_of(at) for at in range(self._providers))

    def budget(self, runs: int) -> int:
        """As if every order were the dearest: a provider may be away when it is asked."""
        if self.variant == "budget":
            return self.price - 1
        return max(price_of(at) for at in range(self._providers)) * runs

    def definition(self) -> dict[str, Any]:
        found = definition("story006")
        offers, order = found["plan"]["steps"]
        if self.variant == "silent":
            offers["timing"]["timeout"] = "PT2S"
        if self.variant == "stalled":
            order["timing"]["timeout"] = "PT2S"
        return found

    async def begin(self, market: StoryMarket, narrator: Narrator) -> None:
        if self.variant == "silent":
            for provider in market.providers:
                provider.signal(signal.SIGSTOP)
                narrator.tell(provider.name, "silent", "is stopped: it hears, and says nothing")

    async def submit(self, market: StoryMarket, run: str) -> str:
        body = {"definition": self.definition(), "run_id": run}
        found = await market.buyer.surely("POST", "/v1/enact/arca/runs", body)
        return str(found["run_id"])

    async def accompany(self, market: StoryMarket, trail: Trail, narrator: Narrator) -> None:
        if self.variant == "conflict":
            for one in list(trail.executions.values()):
                if one["result"] and one["execution_id"] not in self._conflicts:
                    await self._send_another(market, one, narrator)
        await accept_all(market, trail, narrator)

    async def end(self, market: StoryMarket, trail: Trail, narrator: Narrator) -> None:
        if self.variant != "silent":
            return
        for provider in market.providers:
            provider.signal(signal.SIGCONT)
            narrator.tell(provider.name, "late", "goes on, and its answer comes too late")
        await asyncio.sleep(LATE_SECONDS)  # what comes now must change nothing, soon or later
        await trail.look()

    # -- the variant `conflict` ------------------------------------------------------------------

    async def _send_another(
        self, market: StoryMarket, one: dict[str, Any], narrator: Narrator
    ) -> None:
        """As the Dator of the provider, with its token: another result of the same order."""
        provider = market.by_participant(one["provider"]["participant_id"])
        assert provider is not None
        path = f"/v1/executions/{part(one['execution_id'])}/result"
        result = await market.buyer.surely("GET", path)
        data = msgspec.json.encode({**result, "output": {"summary": "something else"}})
        token = (provider.folder.path / "middleware" / "dator" / "host-authtok").read_text()
        sent = await provider.ask(
            "POST",
            "/v1/host/capabilities/artifact.delivery.send",
            _envelope(data, market.buyer.node_id),
            headers={MODULE_HEADER: token.strip()},
        )
        self._conflicts[one["execution_id"]] = sent["delivery/id"]
        narrator.tell(provider.name, "conflict", f"sends another result of {one['order_id']}")
        await self._require_refused(provider, sent["delivery/id"], narrator)

    async def _require_refused(self, provider: Any, delivery: str, narrator: Narrator) -> None:
        path, found = f"/v1/artifact-delivery/deliveries/{part(delivery)}", {}

        async def has_ended() -> bool:
            found.update(await provider.surely("GET", path))
            return found["status"] not in ("accepted", "running", "failed-retryable")

        await until(has_ended, START_SECONDS, "the second result to be refused")
        why = found.get("failure/class", "")
        narrator.tell("buyer", "refused", f"refuses it: {found['status']}, {why}")
        self._refused = found["status"]

    # -- what it must come to --------------------------------------------------------------------

    def outcome(self, trail: Trail) -> list[str]:
        shown = trail.snapshot
        error = shown.get("error") or {}
        match self.variant:
            case "silent":
                wrong = expect(shown, status="step_timeout") + expect(error, step_id="offers")
                return wrong + expect({"orders": states(trail)}, orders={})
            case "budget":
                wrong = expect(shown, status="failed")
                wrong += expect(error, code="settlement-blocked", step_id="order")
                return wrong + expect({"orders": states(trail)}, orders={})
            case "stalled":
                wrong = expect(shown, status="step_timeout") + expect(error, step_id="order")
                return wrong + expect({"orders": states(trail)}, orders={"order": "expired"})
        wrong = expect(shown, status="completed")
        wrong += expect({"orders": states(trail)}, orders={"order": "released"})
        wrong += self._wrong_output(trail)
        if self.variant == "conflict":
            wrong += expect({"second_result": self._refused}, second_result="failed-permanent")
        return wrong

    def _wrong_output(self, trail: Trail) -> list[str]:
        wanted = summarise(self.definition()["input"])
        (order,) = (one for one in trail.snapshot["steps"] if one["step_id"] == "order")
        return [] if order.get("output") == wanted else [f"the output is {order.get('output')!r}"]


def name_of(at: int) -> str:
    return NAMES[at] if at < len(NAMES) else f"provider{at + 1}"


def price_of(at: int) -> int:
    return PRICES[at] if at < len(PRICES) else max(PRICES) + at


def _envelope(data: bytes, node: str) -> dict[str, Any]:
    target = {"selector/kind": "node", "node/id": node}
    return {
        "schema": "artifact-delivery-envelope.v1",
        "component/id": "dator",
        "artifact": {
            "schema": RESULT,
            "content/type": "application/json",
            "digest": digest_of(data),
            "size/bytes": len(data),
            "bytes/base64": base64.b64encode(data).decode(),
        },
        "delivery/plan": {"stages": [{"stage/id": "reply", "targets": [target]}]},
    }
