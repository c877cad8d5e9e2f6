"""M2: a fan-out to 100 peers, in one process.

A buyer with Arca and 100 providers are whole nodes in one world of virtual time, so what is
measured is what the nodes compute: a run is started, the holders of a passport are looked up,
each gets a signed message, a module of its node answers with a signed offer, and the cheapest is
chosen. Every message and answer is signed, checked and decoded as on the wire; the offers that come
back are checked by the buyer's host and by Arca. Sessions are open, as they are after the first
round; the first round, which opens them, stands beside it.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anabranch.market.node.modules.part import HostCall
from anabranch.modules.kit.host import Host
from anabranch.modules.kit.module import Module, PeerMessage, reply
from anabranch.testing.market import NodeSpec, World, arca
from bench.node_deliveries import check_seconds
from bench.rows import Row

PEERS, ROUNDS, AIM = 100, 9, 200
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
DEFINITION = {
    "workflow_id": "solicit",
    "plan": {
        "steps": [
            {
                "step_id": "solicit",
                "service_type": SERVICE,
                "input": {"text": "something to make shorter"},
                "target": {"resolve": "capability", "capability_id": "offer-catalog"},
                "fan_in": {
                    "policy": "best_of",
                    "score_field": "/offer/pricing~1amount",
                    "score_order": "asc",
                },
                "timing": {"timeout": "PT30S"},
            }
        ]
    },
}


class Seller(Module):
    """Answers a fan-out with the offer of its node."""

    module_id = "seller"

    def __init__(self, host: HostCall) -> None:
        self._host = Host(host)
        super().__init__()

    def report(self) -> dict[str, Any]:
        chain = {"chain": "inbound-peer", "message_types": ["workflow.fanout.request"]}
        return {"input_chains": [chain]}

    async def peer_message(self, message: PeerMessage) -> dict[str, Any]:
        query = {"service/type": message.payload["service_type"]}
        body = {"schema_version": "v1", "capability_id": "offers_local_query", "query": query}
        answer = await self._host.capability("offers.local.query", body)
        offer = answer.body["local_offers"][0]["offer"]
        dispatch = message.payload["dispatch_id"]
        said = {"schema_version": "v1", "dispatch_id": dispatch, "status": "offer"}
        return reply({**said, "offer": offer})


async def _market() -> World:
    """Arca hears of no offer but by its fan-outs."""
    buying = arca({"peer_sync_interval_sec": 86_400})
    passports = {"directory": {"passports": ["offer-catalog"]}}
    sellers = [
        NodeSpec(name=f"seller-{number}", modules={"seller": Seller}, config=passports)
        for number in range(PEERS)
    ]
    world = World([NodeSpec(name="buyer", modules={"arca": buying}), *sellers])
    for number, spec in enumerate(sellers):
        draft = {**OFFER, "offer/id": f"offer:{number}", "pricing/amount": 10 + number * 7 % PEERS}
        answer = await world[spec.name].request("POST", "/v1/service-offers", draft)
        _require(answer.status == 201, answer)
    world.advance(60)
    return world


async def _round(world: World, name: str) -> tuple[float, float]:
    """Seconds from the start of a run to its end, and those of the processor."""
    buyer = world["buyer"]
    body = {"definition": DEFINITION, "run_id": name}
    gc.collect()
    begin, busy = time.perf_counter(), time.process_time()
    answer = await buyer.request("POST", "/v1/enact/arca/runs", body)
    _require(answer.status == 201, answer)
    module = buyer.modules["arca"].module
    world.run_until(lambda: _is_over(module, name), 30)
    taken = time.perf_counter() - begin, time.process_time() - busy
    _check((await buyer.request("GET", f"/v1/enact/arca/runs/{name}")).body)
    return taken


def _is_over(module: Any, run: str) -> bool:
    return bool(module.runs.engine.state(run).finished)


def _check(run: Mapping[str, Any]) -> None:
    (step,) = run["steps"]
    usable = [one for one in step["dispatches"] if one["outcome"] == "usable"]
    _require(run["status"] == "completed" and len(usable) == PEERS, run)
    _require(step["selected_output"]["offer"]["pricing/amount"] == 10, run)


def _require(is_so: bool, what: Any) -> None:
    if not is_so:
        raise RuntimeError(str(what)[:2000])


async def m2(folder: Path) -> list[Row]:  # noqa: ARG001 - nothing is written here
    """One run that asks 100 peers, from its start to its end."""
    world = await _market()
    gc.collect()
    gc.freeze()  # as a server does with what it begins with: 100 nodes share this process
    first, _ = await _round(world, "run:first")
    rounds = [await _round(world, f"run:{number}") for number in range(ROUNDS)]
    taken = sorted(seconds for seconds, _ in rounds)
    busy = statistics.median(seconds for _, seconds in rounds)
    checks = busy / check_seconds()
    await world.close()
    gc.unfreeze()
    median = statistics.median(taken) * 1000
    words = (
        f"{taken[0] * 1000:.0f} to {taken[-1] * 1000:.0f}; "
        f"CPU {busy * 1000:.0f} ms, as {checks:.0f} checks of a signature"
    )
    aim = f"≤ {AIM} ms"
    return [
        Row(f"M2 fan-out to {PEERS} peers", median, "ms", words, None, aim, median <= AIM),
        Row("M2 and with its sessions", first * 1000, "ms", "each opened first", None, "", None),
    ]
